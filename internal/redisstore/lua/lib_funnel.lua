-- How a leaky bucket is stored. Needs lib.lua.
-- "f <generation> <born> <rate> <us> <rem>[ <waiting> <full>]": empty at us + rem/D microseconds. The
-- rate is the text "D/T", T being the microseconds that one unit takes to leak: equal
-- rates have equal texts. Born is the time at which the newest unit was booked, 0 if
-- none was. Until waiting there are callers who have booked ahead and wait, by a capacity of full us or
-- more; without it there are none. Such a booking must be told from units above the capacity that are in use, which nodes have
-- admitted at the same moment: only of the second a refund may lower the level.

-- rated returns D and T of a rate.
local function rated(rate)
  return match(rate, '^(%d+)/([%d.]+)$')
end

local function add(us, rem, dus, drem, D)
  us, rem = us + dus, rem + drem
  if rem >= D then
    us, rem = us + 1, rem - D
  end
  if us > TOP then
    us, rem = TOP, 0
  end
  return us, rem
end

-- subtract returns a - b, at least 0.
local function subtract(us, rem, dus, drem, D)
  us, rem = us - dus, rem - drem
  if rem < 0 then
    us, rem = us - 1, rem + D
  end
  if us < 0 then
    us, rem = 0, 0
  end
  return us, rem
end

local function less(aus, arem, bus, brem)
  return aus < bus or (aus == bus and arem < brem)
end

local function later(aus, arem, bus, brem)
  if less(aus, arem, bus, brem) then
    return bus, brem
  end
  return aus, arem
end

-- level returns how long until a leaky bucket is empty.
local function level(us, rem, now)
  if us < now then
    return 0, 0
  end
  return us - now, rem
end

-- wait notes that a caller waits until the given time, by a capacity of full us.
local function wait(st, now, at, full)
  if st.waiting <= now or full < st.full then
    st.full = full
  end
  st.waiting = math.max(st.waiting, math.min(at, TOP))
end

-- refunded notes that the level was lowered. Nobody waits once it is within the capacity.
local function refunded(st, now)
  local us, rem = level(st.us, st.rem, now)
  st.waiting = math.min(st.waiting, now + math.max(us - st.full, 0) + (rem > 0 and 1 or 0))
end

-- read_funnel reads a leaky bucket for a rule with the given rate. If it was stored with
-- another rate, its level is converted: the units stay the same, rounded up.
local function read_funnel(key, rate, now)
  local v = fetch(key)
  if not v then
    return { absent = true, gen = 0, reset = 0, born = 0, us = 0, rem = 0, waiting = 0, full = 0 }
  end
  local gen, born, was, us, rem, rest = match(#v <= 200 and v or '', '^f ([%d/]+) (%d+) (%S+) (%d+) (%d+)(.*)$')
  local waiting, full = match(rest or '', '^ (%d+) (%d+)$')
  local d, t = rated(was or '')
  if not d or rest ~= '' and not full then
    bad('not the state of a funnel')
  end
  local st = { born = num(born), us = num(us), rem = num(rem), waiting = num(waiting or '0'), full = num(full or '0') }
  read_gen(st, gen)
  d = num(d)
  if st.rem >= d or st.us > TOP or st.born > TOP or st.waiting > TOP or st.full > TOP then
    bad('state of a funnel out of range')
  end
  if was ~= rate then
    local _, T = rated(rate)
    local from, to = tonumber(t), tonumber(T)
    if not (from and from > 0 and from < 1e30) then
      bad('state of a funnel out of range')
    end
    local left, rest = level(st.us, st.rem, now)
    st.converted = left > 0 or rest > 0
    if st.converted then
      st.us, st.rem = math.min(now + math.ceil((left + rest / d) * (to / from)) + 1, TOP), 0
    else
      st.rem = 0 -- it is empty: the rate does not matter
    end
  end
  return st
end

-- write_funnel stores a leaky bucket. One that was converted begins a new generation:
-- to a node with the old rate the new value may look like data loss.
local function write_funnel(key, st, rate, now, horizon)
  if st.converted then
    renew(st, now)
    st.converted = false
  end
  local value = 'f ' .. gen_text(st) .. ' ' .. int(st.born) .. ' ' .. rate .. ' ' .. int(st.us) .. ' ' .. int(st.rem)
  if st.waiting > now then
    value = value .. ' ' .. int(st.waiting) .. ' ' .. int(st.full)
  end
  store(key, value, st.rem > 0 and st.us + 1 or st.us, now, st.gen, horizon)
end
