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
