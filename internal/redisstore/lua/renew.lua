-- Sets the used units of a counter, whatever was counted before; a reset sets 0.
-- The counter begins a generation that no earlier view has, and keeps it for as
-- long as such a view could matter.
--
-- KEYS[1] the counter
-- ARGV    kind (f leaky bucket, w window, l log), rate, width us or calendar, kept, horizon
--         ms, and what is used: for a leaky bucket its cost in us and rem, else units
-- Reply   "1", Redis' time in us, which is also the time of birth, generation, and the
--         state: for a leaky bucket level us, level rem, for a window its buckets; or
--         "e", reason, "0"

local key, kind = KEYS[1], ARGV[1]
local now = clock()
local size, horizon = tonumber(ARGV[2]), tonumber(ARGV[4])
local rule = { width = size, calendar = not size and ARGV[2], kept = tonumber(ARGV[3]), horizon = horizon }

local set = {}

set.f = function()
  local rate = ARGV[2]
  local st = read_funnel(key, rate, now)
  st.converted = false
  renew(st, now)
  st.reset, st.born = st.gen, now
  local us, rem = tonumber(ARGV[5]), tonumber(ARGV[6])
  st.us, st.rem, st.waiting = 0, 0, 0
  if us > 0 or rem > 0 then
    st.us, st.rem = add(now, 0, us, rem, tonumber((rated(rate))))
  end
  write_funnel(key, st, rate, now, horizon)
  us, rem = level(st.us, st.rem, now)
  return { '1', int(now), int(st.gen), int(us), int(rem) }
end

set.w = function()
  local st = read_window(key, rule, now)
  renew(st, now)
  st.reset, st.born = st.gen, now
  local used = tonumber(ARGV[5])
  st.n, st.l, st.ages = {}, {}, {}
  if used > 0 then
    st.n[0], st.l[0], st.ages[1] = used, st.at % rule.width, 0
  end
  write_window(key, st, rule)
  return { '1', int(now), int(st.gen), (buckets(st, rule)) }
end

set.l = function()
  -- A log has no generation: no node holds a view of it.
  local used = tonumber(ARGV[5])
  members(key)
  -- Add the new members first: if there is no memory for them, none is removed.
  enter(key, now, 0, used)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. int(now))
  redis.call('ZREMRANGEBYRANK', key, int(used), '-1')
  if used > 0 then
    redis.call('PEXPIRE', key, int(math.min(math.ceil(size / 1000) + SLACK, FOREVER)))
  end
  return { '1', int(now), '0' }
end

local answer, why = guard(set[kind])
return answer or { 'e', why, '0' }
