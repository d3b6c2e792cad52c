-- Functions that scripts share.
--
-- Errors. An error of one key is raised with bad() and caught by guard(), so that
-- the reply reports it for that key alone. Every other error is raised by redis.call
-- itself and fails the whole script, with Redis' own message.

local ceil = math.ceil

-- %d takes half of the time that %.0f takes, but its range depends on the machine.
local whole = format('%d', TOP) == '9007199254740991' and '%d' or '%.0f'

local function int(x)
  return format(whole, x)
end

local function bad(why)
  error('!' .. why, 0)
end

-- guard calls f and returns its result, or nil and the reason that bad() got.
local function guard(f, ...)
  local ok, r = pcall(f, ...)
  if ok then
    return r
  end
  if type(r) == 'string' and sub(r, 1, 1) == '!' then
    return nil, sub(r, 2)
  end
  error(type(r) == 'string' and (string.gsub(r, '^ERR ', '')) or r, 0) -- Redis adds ERR again
end

-- num parses a number that was read from a key. The text has only digits and
-- slashes. Only the spelling that int() produces is accepted: some versions of Lua
-- read a leading 0 as octal.
local function num(s)
  local n = tonumber(s)
  if not n or byte(s) == 48 and s ~= '0' or #s > 16 then
    bad('not a number in canonical form')
  end
  if #s == 16 and s > '9007199254740992' then
    bad('number above 2^53') -- compared as text: 2^53 + 1 is not a double
  end
  return n
end

-- try runs a command, which must be safe to run twice. A key of another type is an
-- error of that key alone.
local function try(...)
  local v = redis.pcall(...)
  if type(v) ~= 'table' then
    return v
  end
  if string.find(tostring(v.err), 'WRONGTYPE', 1, true) then
    bad('WRONGTYPE')
  end
  return redis.call(...) -- raises Redis' own message: error() would put ERR before it
end

-- ahead holds values that were read in advance, by key. Each value is used once.
local ahead = {}

-- fetch returns the string at a key, or false. Where MGET found nothing it reads
-- again: the key may be of another type.
local function fetch(key)
  local v = ahead[key]
  if v then
    ahead[key] = nil
    return v
  end
  return try('GET', key)
end

-- lasts returns for how many ms to keep a counter that matters until the given time.
-- A generation is kept for as long as an older view could come back (horizon), and at
-- least for what is left of the current TTL: a node whose rule has a higher limit, and
-- so a longer horizon, may have read the generation.
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

-- store writes a state that matters until the given time.
local function store(key, value, untilus, now, gen, horizon)
  call('SET', key, value, 'PX', int(lasts(key, untilus, now, gen, horizon)))
end

-- remember extends the TTL of a counter that is only read: a node that has read its
-- generation would take an older one for data loss. A server that cannot write still
-- answers.
local function remember(key, untilus, now, gen, horizon)
  if gen > 0 then
    redis.pcall('PEXPIRE', key, int(lasts(key, untilus, now, gen, horizon)))
  end
end

-- A generation is a number, or "<generation>/<reset>": the second is the generation
-- that the latest reset began. A refund of units from before it is dropped: the reset
-- has cleared these units.

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

-- renew begins a generation of a counter that has been lowered. No earlier view has
-- it, so that no node takes the difference for data loss. It is later than all earlier
-- bookings, even if the clock has been set back since.
local function renew(st, now)
  st.gen = math.min(math.max(now, st.gen + 1, st.born + 1), TOP)
end
