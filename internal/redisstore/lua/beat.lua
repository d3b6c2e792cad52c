-- Marks a node as alive, and counts the live nodes.
--
-- KEYS[1] sorted set of the nodes, scored by the time at which each counts as
--         gone, in us
-- KEYS[2] the same of the layouts (version and number of shards) in use: nodes with
--         different layouts share no keys
-- KEYS[3] the id of the channel for notices in this database
-- KEYS[4] the node's ledger in the same shard, if its last batch is asked for
-- ARGV    node, ms until it counts as gone, TTL of what the node keeps here in ms,
--         its layout, and the id that the channel gets if it has none: 1 to 40 letters
--         and digits, or "" if the caller does not need it
-- Reply   number of live nodes, Redis' time in us, the last batch of the ledger (as in
--         seq.lua), the id of the channel (also "" if its key is broken), and the layouts in
--         use; or "e", reason, Redis' time in us, the last batch, the id, if the set of
--         nodes cannot be read

local now = clock()

-- enter adds a member to a set, which counts as gone ARGV[2] ms from now, and removes
-- members that have gone.
local function enter(key, member)
  try('ZADD', key, int(now + tonumber(ARGV[2]) * 1000), member)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  redis.call('PEXPIRE', key, ARGV[3])
  return true
end

-- channel returns the id of the channel, and renews its TTL. A key with any other value is
-- left as it is: others may use it.
local function channel(key, offer)
  if offer == '' or redis.call('SET', key, offer, 'NX', 'PX', ARGV[3]) then
    return offer
  end
  local id = guard(fetch, key) or ''
  if #id > 40 or not match(id, '^[%dA-Za-z]+$') then
    return ''
  end
  redis.call('PEXPIRE', key, ARGV[3])
  return id
end

local seq = KEYS[4] and last_batch(KEYS[4], ARGV[3]) or '0'
local id = channel(KEYS[3], ARGV[5])
local layouts = guard(enter, KEYS[2], ARGV[4]) and redis.call('ZRANGE', KEYS[2], 0, 9) or {}
local ok, why = guard(enter, KEYS[1], ARGV[1])
if not ok then
  return { 'e', why, int(now), seq, id }
end
return { int(redis.call('ZCARD', KEYS[1])), int(now), seq, id, unpack(layouts) }
