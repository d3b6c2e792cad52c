-- How a window is stored. Needs lib.lua.
-- "w <generation> <born> <width> id:units:last id:units:last ...": units per bucket,
-- where id is the time divided by the width, and last says how many us after the
-- bucket began its last unit came, rounded up. In tables the index of a bucket is its
-- age (0 = current), which is small for any time and width. n has the units, l the
-- last, and ages the ages that they have or had.
--
-- All of these times are Redis' own, but for a calendar. Its periods are of different lengths. A
-- time in one is (id + 1) * width less what is left of it: so each is the last part of a bucket,
-- and everything here holds for it. A rule with a calendar has a text instead of a width:
-- "<width> <id> <begins> <ends> <ends> <ends> <ends>", a period and the ends of it and of the next
-- three, which the sender has computed. The width is longer than two periods.

-- time_in returns the time by which the buckets of a rule are numbered.
local function time_in(rule, now)
  if not rule.calendar then
    return now
  end
  local width, id, begins, first, second, third, fourth = match(rule.calendar, '^(%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')
  width, id, first, second, third = width + 0, id + 0, first + 0, second + 0, third + 0
  if now < begins + 0 or now >= third then
    bad('its clock shows ' .. int(now) .. ' us, which is in no period that was sent') -- the sender's clock is wrong: it asks again
  end
  local ends, following = first, second
  if now >= second then
    id, ends, following = id + 2, third, fourth + 0
  elseif now >= first then
    id, ends, following = id + 1, second, third
  end
  rule.width = width
  rule.following = (id + 2) * width - (following - now) -- the same time in the next period
  return (id + 1) * width - (ends - now)
end

-- begun returns the time in a calendar if the newest bucket of a list is of the next period. It has
-- begun for a sender that has other time zone data, and does not end again: else what is counted in
-- it would be forgotten with each call of a sender for which it has not begun.
local function begun(list, rule, at)
  local newest = match(list, ' (%d+):%d+:%d+$')
  local cur = (at - at % rule.width) / rule.width
  if newest and #newest < 16 and newest - 1 == cur then
    return rule.following
  end
  return at
end

-- ended reports whether a period of another calendar has ended: born is when a unit was last booked in it,
-- or later, and what was left of the period then is known. It is stored for longer if there were refunds.
local function ended(list, width, born, now)
  local last = match(list, ' %d+:%d+:(%d+)$')
  return last and #last < 16 and now - born > width - last
end

-- place adds the buckets of a list of " id:units:last", of the given width, to st. If early is set, a
-- bucket of the previous period counts in the current one, which has not begun for its sender. It sets
-- st.moved if a bucket counts in another one. Who is answered takes the units for units of that one, so
-- they are to be stored there.
local function place(st, list, width, rule, now, early)
  local n, l, ages, kept, to = st.n, st.l, st.ages, rule.kept, rule.width
  local cur = (now - now % to) / to
  local seen = 0
  for id, units, last in string.gmatch(list, ' (%d+):(%d+):(%d+)') do
    seen = seen + #id + #units + #last + 3
    id, units, last = num(id), num(units), math.min(num(last), width)
    if width ~= to and rule.calendar then
      id, last = cur, 0 -- when the periods of another calendar were is not known
    elseif width ~= to then
      -- Another width: all units of the old bucket go where its last unit belongs.
      local at = math.min(id * width + last, now)
      last = at % to
      id = (at - last) / to
    end
    -- A bucket later than Redis' time (which was set back, or which a sender has
    -- estimated too high) counts as the current one, its last unit as of now.
    local age = cur - id
    if age < 0 or early and age == 1 then
      st.moved, age, last = true, 0, now % to
    end
    if age <= kept and units > 0 then
      if not l[age] then
        st.mixed = st.mixed or #ages > 0 and ages[#ages] < age
        ages[#ages + 1] = age
      end
      local sum = (n[age] or 0) + units
      n[age] = sum < MAX and sum or MAX
      l[age] = math.max(l[age] or 0, last)
    end
  end
  if seen ~= #list then
    bad('not a list of buckets')
  end
end

local function read_window(key, rule, now)
  local st = { gen = 0, reset = 0, born = 0, n = {}, l = {}, ages = {}, at = time_in(rule, now), early = false }
  local v = fetch(key)
  if not v then
    st.absent = true
    return st
  end
  if #v > 65536 then
    bad('not the state of a window')
  end
  local gen, born, width, list = match(v, '^w ([%d/]+) (%d+) (%d+)(.*)$')
  if not gen then
    bad('not the state of a window')
  end
  read_gen(st, gen)
  st.born, width = num(born), num(width)
  st.converted = width ~= rule.width
  if width < 1 or st.born > TOP then
    bad('state of a window out of range')
  end
  if rule.calendar and not st.converted then
    local at = begun(list, rule, st.at)
    st.early, st.at = at ~= st.at, at
  end
  if rule.calendar and st.converted and ended(list, width, st.born, now) then
    return st
  end
  place(st, list, width, rule, st.at)
  return st
end

local bucket = ' ' .. whole .. ':' .. whole .. ':' .. whole

local function older(a, b)
  return a > b
end

-- by_age returns the ages of a window's buckets, the oldest first, which is how they are stored.
local function by_age(st)
  if st.mixed then
    table.sort(st.ages, older)
    st.mixed = false
  end
  return st.ages
end

-- buckets returns the list of a window's buckets, oldest first, and the age of
-- the newest one (nil if there is none).
local function buckets(st, rule)
  local cur = (st.at - st.at % rule.width) / rule.width
  local list, newest = {}, nil
  for _, age in ipairs(by_age(st)) do
    if st.n[age] then
      list[#list + 1] = format(bucket, cur - age, st.n[age], st.l[age])
      newest = age
    end
  end
  return table.concat(list), newest
end

-- write_window stores a window, and returns the list of its buckets.
local function write_window(key, st, rule)
  local now = st.at
  local list, newest = buckets(st, rule)
  local ends = now
  if newest then
    ends = now - now % rule.width + (rule.kept + 1 - newest) * rule.width
  end
  local value = 'w ' .. gen_text(st) .. ' ' .. int(st.born) .. ' ' .. int(rule.width) .. list
  store(key, value, ends, now, st.gen, rule.horizon)
  return list
end
