-- clock returns Redis' time in microseconds.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
