-- Refunds units of a counter, at most as many as it has: the newest first, or those of
-- one booking. It begins a generation that no earlier view has.
--
-- KEYS[1] the counter
-- ARGV    kind (f leaky bucket, w window, l log), rate, width us or calendar, kept, horizon ms, and
--         what is refunded: for a leaky bucket its cost in us and rem, else units and 0;
--         and the capacity of a leaky bucket (us, rem), else 0 and 0. To refund only what
--         still counts of one booking, there follow the time of the booking in us and, for
--         a leaky bucket, the time at which it was to be empty with it (us, rem)
-- Reply   "1", Redis' time in us, generation, and what could be refunded: for a leaky
--         bucket level us and level rem; for a log units; for a window the units of all
--         buckets but the oldest, the units of the oldest, which count in part, when the
--         last of them came, and how much of the current bucket has passed, both in us;
--         or "e", reason, "0"

local key, kind = KEYS[1], ARGV[1]
local now = clock()
local size, horizon, n = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local once = tonumber(ARGV[9]) -- nil: units of all times

local take_off = {}

-- A leaky bucket is above its capacity until the last booking ahead is due, and must
-- not be lowered while a caller waits. Which bookings wait is not known here, only
-- until when any do, and whether there are any behind the one that is refunded.
take_off.f = function()
  local rate = ARGV[2]
  size = tonumber((rated(rate)))
  local st = read_funnel(key, rate, now)
  local us, rem = level(st.us, st.rem, now)
  local bus, brem = n, tonumber(ARGV[6])
  local behind = true
  if once then
    -- The rest of the booking has leaked, for others to use, or was cleared by a reset.
    local lus, lrem = level(tonumber(ARGV[10]), tonumber(ARGV[11]), now)
    if st.reset >= once then
      lus, lrem = 0, 0
    end
    if less(lus, lrem, bus, brem) then
      bus, brem = lus, lrem
    end
    behind = less(lus, lrem, us, rem)
  end
  -- Callers that wait keep their times: a lower level would admit new callers at the
  -- same times once more.
  if behind and st.waiting > now and less(tonumber(ARGV[7]), tonumber(ARGV[8]), us, rem) then
    return { '1', int(now), int(st.gen), '0', '0' }
  end
  if (us > 0 or rem > 0) and (bus > 0 or brem > 0) then
    st.us, st.rem = subtract(st.us, st.rem, bus, brem, size)
    refunded(st, now)
    st.converted = false
    renew(st, now)
    write_funnel(key, st, rate, now, horizon)
  end
  return { '1', int(now), int(st.gen), int(us), int(rem) }
end

take_off.w = function()
  local rule = { width = size, calendar = not size and ARGV[2], kept = tonumber(ARGV[3]), horizon = horizon }
  local st = read_window(key, rule, now)
  local sum, left, oldest, last = 0, n, 0, st.l[rule.kept] or 0
  local from, to = 0, rule.kept
  if once then
    local before = guard(time_in, rule, once) -- nil: in a period of long ago
    from = before and math.max((st.at - st.at % rule.width - (before - before % rule.width)) / rule.width, 0) or 1
    to = st.reset >= once and -1 or math.min(from, rule.kept)
  end
  local ages = by_age(st)
  for i = #ages, 1, -1 do -- the newest first
    local age = ages[i]
    if from <= age and age <= to then
      local units = st.n[age]
      if age > 0 and age == rule.kept then
        oldest = units
      else
        sum = math.min(sum + units, MAX)
      end
      local off = math.min(units, left)
      left = left - off
      st.n[age] = units > off and units - off or nil
    end
  end
  if sum > 0 or oldest > 0 then
    renew(st, now)
    write_window(key, st, rule)
  end
  return { '1', int(now), int(st.gen), int(sum), int(oldest), int(last), int(st.at % rule.width) }
end

take_off.l = function()
  members(key)
  local count = redis.call('ZCOUNT', key, '(' .. int(now - size), '+inf')
  local off = math.min(n, count)
  if once then
    local at = int(once)
    local before = redis.call('ZCOUNT', key, '-inf', '(' .. at)
    local there = redis.call('ZCOUNT', key, at, at)
    off = once > now - size and math.min(n, there) or 0
    if off > 0 then
      redis.call('ZREMRANGEBYRANK', key, int(before + there - off), int(before + there - 1))
    end
  elseif off > 0 then
    redis.call('ZREMRANGEBYRANK', key, int(-off), '-1')
  end
  return { '1', int(now), '0', int(count) }
end

local answer, why = guard(take_off[kind])
return answer or { 'e', why, '0' }
