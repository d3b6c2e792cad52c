-- Functions that scripts share.
--
-- Errors. What is wrong with one key is raised with bad() and caught by
-- guard(), so that the answer blames that key alone. Everything else is raised
-- by redis.call itself and fails the whole script, with Redis' own words.

local ceil = math.ceil

-- To print a number as an integer takes half of the time that %.0f takes, but its range
-- is that of the machine.
local whole = format('%d', TOP) == '9007199254740991' and '%d' or '%.0f'

local function int(x)
  return format(whole, x)
end

-- pair returns the text of two numbers, of which the second is mostly 0.
local one_and_0, two = whole .. ' 0', whole .. ' ' .. whole
local function pair(x, y)
  if y == 0 then
    return format(one_and_0, x)
  end
  return format(two, x, y)
end

local function bad(why)
  error('!' .. why, 0)
end

-- guard calls f and returns its result, or nil and what bad() was told.
local function guard(f, ...)
  local ok, r = pcall(f, ...)
  if ok then
    return r
  end
  if type(r) == 'string' and sub(r, 1, 1) == '!' then
    return nil, sub(r, 2)
  end
  error(type(r) == 'string' and (string.gsub(r, '^ERR ', '')) or r, 0) -- Redis puts ERR before what is raised
end

-- num parses a number that was read from a key, and has nothing but digits and
-- slashes in it. Only the one spelling that int() produces is accepted: other Luas
-- take a leading 0 for octal.
local function num(s)
  local n = tonumber(s)
  if not n or byte(s) == 48 and s ~= '0' or #s > 16 then
    bad('not a number in canonical form')
  end
  if #s == 16 and s > '9007199254740992' then
    bad('number above 2^53') -- compared as text: the next one is not a double
  end
  return n
end

-- try runs a command that may be run twice, and blames the key if it is of another
-- type.
local function try(...)
  local v = redis.pcall(...)
  if type(v) ~= 'table' then
    return v
  end
  if string.find(tostring(v.err), 'WRONGTYPE', 1, true) then
    bad('WRONGTYPE')
  end
  return redis.call(...) -- raises in Redis' own words: error() would put ERR before them
end

-- ahead holds what was read before it was needed, by key. Each value is good for one use.
local ahead = {}

-- fetch returns the string at a key, or false. One that MGET finds nothing at may
-- be of another type.
local function fetch(key)
  local v = ahead[key]
  if v then
    ahead[key] = nil
    return v
  end
  return try('GET', key)
end

-- lasts returns for how many ms a counter is kept that matters until the given
-- time. A generation must be remembered for as long as an older view could come
-- back, and as anybody may know it who was told of it: if his limit is higher,
-- that is longer.
local function lasts(key, untilus, now, gen, horizon)
  local ttl = 0
  if untilus > now then
    ttl = ceil((untilus - now) / 1000)
  end
  if gen > 0 then
    ttl = math.max(ttl, horizon, redis.call('PTTL', key) - SLACK)
  end
  ttl = ttl + SLACK
  return ttl < FOREVER and ttl or FOREVER
end

-- spell returns a TTL as text. Many keys of a batch last as long as the one before.
local spelled, spelling
local function spell(ms)
  if ms ~= spelled then
    spelled, spelling = ms, int(ms)
  end
  return spelling
end

-- store writes a state that matters until the given time.
local function store(key, value, untilus, now, gen, horizon)
  call('SET', key, value, 'PX', spell(lasts(key, untilus, now, gen, horizon)))
end

-- remember prolongs the life of a counter that is only asked for: whoever is
-- told of its generation takes an older one for a loss from now on. A server that
-- must not write still answers.
local function remember(key, untilus, now, gen, horizon)
  if gen > 0 then
    redis.pcall('PEXPIRE', key, int(lasts(key, untilus, now, gen, horizon)))
  end
end

-- Funnel ---------------------------------------------------------------------
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

-- A generation is a number, or "<generation>/<reset>": the second is the one that
-- the latest reset has begun. What is handed back of units from before it has
-- been forgotten with them.

local function read_gen(st, text)
  local gen, reset = match(text, '^(%d+)/(%d+)$')
  st.gen, st.reset = num(gen or text), num(reset or '0')
  if st.gen > TOP or st.reset > st.gen then
    bad('generation out of range')
  end
end

local function gen_text(st)
  if st.reset == 0 then
    return int(st.gen)
  end
  return int(st.gen) .. '/' .. int(st.reset)
end

-- renew puts a counter that has been lowered into a generation that no earlier
-- view has, so that nobody takes the difference for a loss. It begins after all that
-- was booked before, even if the clock has been set back since.
local function renew(st, now)
  st.gen = math.min(math.max(now, st.gen + 1, st.born + 1), TOP)
end

-- merge puts two states of a counter together: st, and one of which the generation
-- and the birth are given. It tells of which of them the content counts. Both are of
-- the later generation from now on, in which only content counts that is of it or
-- was born since it began: older content is what that generation has cleared. If that or
-- the birth lies after now, the clock has been set back: when st was booked says nothing then.
local function merge(st, gen, born, now)
  local top = math.max(st.gen, gen)
  local mine = st.gen == top or st.born >= top or math.max(top, born) > now
  local theirs = gen == top or born >= top
  if st.gen < top then
    -- Which reset it began with, nobody knows here: what is handed back of units
    -- from before stays counted.
    st.gen, st.reset = top, top
  end
  st.born = math.max(mine and st.born or 0, theirs and born or 0)
  return mine, theirs
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

-- Windows --------------------------------------------------------------------
-- "w <generation> <born> <width> id:units:last id:units:last ...": units per bucket,
-- where id is the time divided by the width, and last says how many us after the
-- bucket began its last unit came, rounded up. In here buckets go by age (0 =
-- current): small numbers, whatever the time and the width. n has their units, l
-- their last.

-- place adds the buckets of a list of " id:units:last", of the given width, to st.
local function place(st, list, width, rule, now)
  local n, l, kept, to = st.n, st.l, rule.kept, rule.width
  local cur = (now - now % to) / to
  local seen = 0
  for id, units, last in string.gmatch(list, ' (%d+):(%d+):(%d+)') do
    seen = seen + #id + #units + #last + 3
    id, units, last = num(id), num(units), math.min(num(last), width)
    if width ~= to then
      -- Another width: the last unit of the old bucket says where it belongs.
      local at = math.min(id * width + last, now)
      last = at % to
      id = (at - last) / to
    end
    -- A bucket ahead of Redis' time (its clock went back, or a sender's
    -- estimate of it is ahead) counts as the current one, and has come by now.
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

-- write_window keeps a window, and returns the list of its buckets.
local function write_window(key, st, rule, now)
  local list, newest = buckets(st, rule, now)
  local ends = now
  if newest then
    ends = now - now % rule.width + (rule.kept + 1 - newest) * rule.width
  end
  local value = 'w ' .. gen_text(st) .. ' ' .. pair(st.born, rule.width) .. list
  store(key, value, ends, now, st.gen, rule.horizon)
  return list
end

-- Logs -------------------------------------------------------------------------
-- A sorted set with one member per unit, scored by when it was admitted.

-- members returns how many units a log has. Its first and last member tell
-- whether it is one: their scores, which servers spell in several ways, and the
-- times in their names are the same.
local function members(key)
  local all = try('ZCARD', key)
  for _, rank in ipairs({ '0', '-1' }) do
    local m = redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local at = tonumber(m[2] or 0)
    local time = at and at >= 0 and at <= TOP and at % 1 == 0
    if not time or (m[1] and not string.find(m[1], '^' .. int(at) .. '%-%d+$')) then
      bad('not the members of a log')
    end
  end
  return all
end

-- enter adds n members of this time. Those of one microsecond are numbered, on
-- from those that are there, of which there are nr. They leave together, or from
-- the highest number down (all numbers are of one length, and Redis orders
-- members as text), so that no number that is taken is given again.
local function enter(key, now, nr, n)
  local stamp = int(now)
  local done = 0
  while done < n do
    local chunk = {}
    for i = 1, math.min(n - done, 1000) do
      chunk[2 * i - 1] = stamp
      chunk[2 * i] = stamp .. string.format('-%07.0f', nr + done)
      done = done + 1
    end
    redis.call('ZADD', key, unpack(chunk))
  end
end
