-- How a log is stored: a sorted set with one member per unit, scored by the time of its
-- admission. Needs lib.lua.

-- members returns how many units a log has. It checks the first and the last member:
-- the score, which servers format in several ways, must be equal to the time in the
-- name.
local function members(key)
  local all = try('ZCARD', key)
  for _, rank in ipairs({ '0', '-1' }) do
    local m = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local at = tonumber(m[2] or 0)
    local time = at and at >= 0 and at <= TOP and at % 1 == 0
    if not time or (m[1] and not string.find(m[1], '^' .. int(at) .. '%-%d+$')) then
      bad('not the members of a log')
    end
  end
  return all
end

-- enter adds n members of this time. Members of one microsecond are numbered from 0;
-- nr of them exist already. They are removed together, or from the highest number
-- down (all numbers have the same length, and Redis orders members as text), so that
-- no number in use is given again.
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
    call('ZADD', key, unpack(chunk))
  end
end
