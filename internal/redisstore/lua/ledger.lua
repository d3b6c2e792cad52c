-- last_batch returns the number of the last batch in a node's ledger, as text, and sets
-- the ledger's TTL in ms. It uses SET even where PEXPIRE would do, to test whether the
-- shard takes writes: a server that is out of memory, read-only or short of replicas
-- still reads, but would not apply a batch.
local function last_batch(key, ttl)
  local v = guard(fetch, key)
  local seq = match(v or '', '^(%d+) %x+ %d+ [-%d,]+ [-%d:,]+$')
  local n = seq and guard(num, seq)
  if v == nil or (v and (not n or n > TOP / 2)) then
    return '0' -- broken: the next batch overwrites it
  end
  if v then
    redis.call('SET', key, v, 'PX', ttl)
  else
    -- An empty ledger means the same as none, and may expire soon.
    redis.call('SET', key, '0 0 0 - -', 'PX', '10000')
  end
  return seq or '0'
end
