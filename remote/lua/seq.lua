-- Reads the last batch that a node's ledger knows, and keeps the ledger alive.
-- It also proves that the shard takes writes: whoever asks wants to know
-- whether a batch would be applied, and one that is out of memory, read-only
-- or short of replicas still reads.
--
-- KEYS[1] the ledger
-- ARGV    its TTL in ms
-- Reply   the seq, "0" if there is none or it cannot be read; Redis' time in us

local now = clock()
local v = guard(fetch, KEYS[1])
local seq = string.match(v or '', '^(%d+) %x+ %d+ [-%d,]+ [-%d:,]+$')
local n = seq and guard(num, seq)
if v == nil or (v and (not n or n > TOP / 2)) then
  return { '0', int(now) } -- broken: the next batch overwrites it
end
if v then
  redis.call('SET', KEYS[1], v, 'PX', ARGV[1])
else
  -- An empty ledger means the same as none, and need not last.
  redis.call('SET', KEYS[1], '0 0 0 - -', 'PX', '10000')
end
return { seq or '0', int(now) }
