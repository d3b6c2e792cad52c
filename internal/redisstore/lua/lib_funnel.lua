-- What is kept of a funnel, after lib.lua:
-- "f <generation> <born> <rate> <us> <rem>": empty at us + rem/D microseconds. The
-- rate is "D/T", T being the microseconds that one unit takes to leak, as text: two
-- rules that leak alike have the same. Born is the time at which the newest unit was
-- booked, 0 if none was.

-- rated returns D and T of a rate.
local function rated(rate)
  local D, T = match(rate, '^(%d+)/?([%d.]*)$')
  return D, T
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

-- level returns how long a funnel still drains.
local function level(us, rem, now)
  if us < now then
    return 0, 0
  end
  return us - now, rem
end

-- read_funnel reads a funnel that leaks at a rate from now on. The level of one
-- that has leaked at another is expressed in units of this, rounded up.
local function read_funnel(key, rate, now)
  local v = fetch(key)
  if not v then
    return { absent = true, gen = 0, reset = 0, born = 0, us = 0, rem = 0 }
  end
  if #v > 160 then
    bad('not the state of a funnel')
  end
  local gen, born, was, us, rem = match(v, '^f ([%d/]+) (%d+) (%S+) (%d+) (%d+)$')
  if not gen then
    bad('not the state of a funnel')
  end
  local st = { born = num(born), us = num(us), rem = num(rem) }
  read_gen(st, gen)
  local d, t = rated(was)
  if not d or #was > 80 then
    bad('not the state of a funnel')
  end
  d = num(d)
  if st.rem >= d or st.us > TOP or st.born > TOP then
    bad('state of a funnel out of range')
  end
  if was ~= rate then
    local _, T = rated(rate)
    local from, to = tonumber(t), tonumber(T)
    if t ~= '' and not (from and from > 0 and from < 1e30) then
      bad('state of a funnel out of range')
    end
    if not from or not to then
      from, to = 1, 1 -- whoever wrote it did not say
    end
    local left, rest = level(st.us, st.rem, now)
    st.converted = left > 0 or rest > 0
    if st.converted then
      st.us, st.rem = math.min(now + math.ceil((left + rest / d) * (to / from)) + 1, TOP), 0
    else
      st.rem = 0 -- it ran empty when it did, at any rate
    end
  end
  return st
end

-- write_funnel keeps a funnel. One that has leaked at another rate begins a new
-- generation: by the rate of before it may seem to have lost something.
local function write_funnel(key, st, rate, now, horizon)
  if st.converted then
    renew(st, now)
    st.converted = false
  end
  local value = 'f ' .. gen_text(st) .. ' ' .. int(st.born) .. ' ' .. rate .. ' ' .. pair(st.us, st.rem)
  store(key, value, st.rem > 0 and st.us + 1 or st.us, now, st.gen, horizon)
end
