-- Says that a node is alive, and counts those that are.
--
-- KEYS[1] sorted set of the nodes, scored by the time at which each counts as
--         gone, in us
-- ARGV    node, ms until it counts as gone
-- Reply   number of live nodes, Redis' time in us

local now = clock()
redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[2]) * 1000), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now))
-- The set lives as long as its longest-lived node, which need not be this one.
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
local ttl = math.ceil((tonumber(last[2]) - now) / 1000) + SLACK
redis.call('PEXPIRE', KEYS[1], int(math.min(ttl, FOREVER)))
return { int(redis.call('ZCARD', KEYS[1])), int(now) }
