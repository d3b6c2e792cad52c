-- Reads the last batch that a node's ledger knows, and keeps the ledger alive.
--
-- KEYS[1] the ledger
-- ARGV    its TTL in ms
-- Reply   the seq, "0" if there is none or it cannot be read

local seq = string.match(guard(fetch, KEYS[1]) or '', '^(%d+) %d+ [-%d,]+$')
local n = seq and guard(num, seq)
if not n or n > TOP / 2 then
  return { '0' }
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return { seq }
