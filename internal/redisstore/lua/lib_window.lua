-- How a window is stored. Needs lib.lua.
-- "w <generation> <born> <width> id:units:last id:units:last ...": units per bucket,
-- where id is the time divided by the width, and last says how many us after the
-- bucket began its last unit came, rounded up. In tables the index of a bucket is its
-- age (0 = current), which is small for any time and width. n has the units, l the
-- last.

-- place adds the buckets of a list of " id:units:last", of the given width, to st.
local function place(st, list, width, rule, now)
  local n, l, kept, to = st.n, st.l, rule.kept, rule.width
  local cur = (now - now % to) / to
  local seen = 0
  for id, units, last in string.gmatch(list, ' (%d+):(%d+):(%d+)') do
    seen = seen + #id + #units + #last + 3
    id, units, last = num(id), num(units), math.min(num(last), width)
    if width ~= to then
      -- Another width: all units of the old bucket go where its last unit belongs.
      local at = math.min(id * width + last, now)
      last = at % to
      id = (at - last) / to
    end
    -- A bucket later than Redis' time (which was set back, or which a sender has
    -- estimated too high) counts as the current one, its last unit as of now.
    local age = cur - id
    if age < 0 then
      age, last = 0, now % to
    end
    if age <= kept and units > 0 then
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
  local st = { gen = 0, reset = 0, born = 0, n = {}, l = {} }
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
  place(st, list, width, rule, now)
  return st
end

local bucket = ' ' .. whole .. ':' .. whole .. ':' .. whole

-- buckets returns the list of a window's buckets, oldest first, and the age of
-- the newest one (nil if there is none).
local function buckets(st, rule, now)
  local cur = (now - now % rule.width) / rule.width
  local list, newest = {}, nil
  for age = rule.kept, 0, -1 do
    if st.n[age] then
      list[#list + 1] = format(bucket, cur - age, st.n[age], st.l[age])
      newest = age
    end
  end
  return table.concat(list), newest
end

-- write_window stores a window, and returns the list of its buckets.
local function write_window(key, st, rule, now)
  local list, newest = buckets(st, rule, now)
  local ends = now
  if newest then
    ends = now - now % rule.width + (rule.kept + 1 - newest) * rule.width
  end
  local value = 'w ' .. gen_text(st) .. ' ' .. int(st.born) .. ' ' .. int(rule.width) .. list
  store(key, value, ends, now, st.gen, rule.horizon)
  return list
end
