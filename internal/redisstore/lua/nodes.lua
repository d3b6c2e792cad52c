-- Lists the live nodes and the layouts in use, and writes nothing.
--
-- KEYS[1] sorted set of the nodes, KEYS[2] the same of the layouts: see beat.lua
-- ARGV    how many of each to list at most
-- Reply   Redis' time in us, number of live nodes, how many of them are listed; for each
--         its name and for how many us it counts as alive; then the same of the layouts.
--         Or "e", reason, index of the key that cannot be read

local now = clock()

-- list appends the members of a set that are still alive. If there are too many, it appends
-- those that expire last.
local function list(answer, key)
  local count = try('ZCOUNT', key, '(' .. int(now), '+inf')
  local most = math.min(count, tonumber(ARGV[1]))
  answer[#answer + 1], answer[#answer + 2] = int(count), int(most)
  if most == 0 then
    return true
  end
  local members = redis.call('ZRANGE', key, int(-most), '-1', 'WITHSCORES')
  for i = 1, #members, 2 do
    local ends = tonumber(members[i + 1])
    answer[#answer + 1] = members[i]
    answer[#answer + 1] = int(math.max(math.min(ends, TOP) - now, 0))
  end
  return true
end

local answer = { int(now) }
for i = 1, 2 do
  local ok, why = guard(list, answer, KEYS[i])
  if not ok then
    return { 'e', why, int(i - 1) }
  end
end
return answer
