-- The long way of batch.lua: what it needs for states and operations that are not usual.
-- With base.lua, lib.lua, lib_funnel.lua and lib_window.lua before it, this is the body of a function, make_long, which a
-- call that goes the short ways only does not pay for. It must not use the locals of
-- batch.lua, which come after it: each would be an allocation in every call.

local now, slack, MEMORY = ...
SLACK = slack
local ops = ARGV[8]
local rules -- by their names
local apply, failed, forgiven -- what is done with the batch; what the ledger says
local cuts, broken = {}, {} -- what this batch is forgiven, and has failed with, for the ledger

-- read_rules reads what the operations are booked under.
local function read_rules(text)
  local count, read = { f = 0, w = 0 }, {}
  for kind, line in string.gmatch(text, '([fw]) ([^\n]*)\n') do
    local rule = {}
    if kind == 'f' then
      local rate, horizon, us, rem = match(line, '^(%S+) (%d+) (%d+) (%d+)$')
      rule.rate, rule.horizon, rule.us, rule.rem = rate, tonumber(horizon), tonumber(us), tonumber(rem)
      rule.D = tonumber((rated(rate)))
    else
      local width, kept, horizon = match(line, '^(%d+) (%d+) (%d+)$')
      rule.width, rule.kept, rule.horizon = tonumber(width), tonumber(kept), tonumber(horizon)
    end
    count[kind] = count[kind] + 1
    read[kind .. int(count[kind])] = rule
  end
  return read
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

local function raise_funnel(st, gen, born, us, rem)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.us, st.rem = 0, 0
  end
  if theirs then
    st.us, st.rem = later(st.us, st.rem, us, rem)
  end
end

local function raise_window(st, gen, born, known, kept)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.n, st.l = {}, {}
  end
  for age = 0, kept do
    if theirs and known.n[age] then
      st.n[age] = math.max(st.n[age] or 0, known.n[age])
      st.l[age] = math.max(st.l[age] or 0, known.l[age])
    end
  end
end

-- The fields of operations by kind: what each has, then those of its groups.
local fields = {
  f = {
    base = { 'units', 'us', 'rem', 'ahead_us', 'ahead_rem' }, r = { 'gen', 'born', 'us', 'rem' },
    c = { 'us', 'rem', 'units' }, b = { 'us', 'rem', 'gen', 'top_us', 'top_rem' },
  },
  w = { base = { 'units' }, r = { 'gen', 'born' }, b = { 'gen' } },
}
local groups = { r = 'raise', c = 'debt', b = 'back' }

-- read returns the numbers in a text by the names of fields. What is left is a list of buckets,
-- which a funnel has not.
local function read(kind, text, names)
  local t, at = {}, 1
  for _, name in ipairs(names or bad('malformed operation')) do
    local _, stop, number = find(text, '^ (%-?%d+)', at)
    t[name], at = tonumber(number) or bad('malformed operation'), (stop or 0) + 1
  end
  t.list = sub(text, at)
  return kind == 'w' and t or t.list == '' and t or bad('malformed operation')
end

-- read_op reads the operation in a line. What is wrong with it is its key's fault.
local function read_op(line)
  local name, kind, base, rest = match(line, '^(([fw])%d+)([^;]*)(.*)$')
  local rule = rules[name or ''] or bad('unknown kind of operation')
  local op, at = read(kind, base, fields[kind].base), 1
  op.kind, op.rule = kind, rule
  while at <= #rest do
    local _, stop, letter, text = find(rest, '^;(%a)([^;]+)', at)
    local group = groups[letter or ''] or bad('malformed operation')
    op[group], at = read(kind, text, fields[kind][letter]), stop + 1
  end
  return op
end

-- forgive takes off what units of an outage have raised a funnel by, from (us, rem),
-- above a ceiling. It returns how many whole units that are.
local function forgive(st, us, rem, debt, rule)
  local D = rule.D
  us, rem = later(us, rem, add(now, 0, debt.us, debt.rem, D))
  if not less(us, rem, st.us, st.rem) then
    return 0
  end
  local over, rest = subtract(st.us, st.rem, us, rem, D)
  -- Division by the cost of a unit, exact: by that of 1, 2, 4, 8 … units.
  local steps, n, cus, crem = {}, 1, rule.us, rule.rem
  while n <= debt.units and cus < TOP and not less(over, rest, cus, crem) do
    steps[#steps + 1] = { n, cus, crem }
    n, cus, crem = n * 2, add(cus, crem, cus, crem, D)
  end
  local cut = 0
  for i = #steps, 1, -1 do
    local s = steps[i]
    if cut + s[1] <= debt.units and not less(over, rest, s[2], s[3]) then
      cut = cut + s[1]
      over, rest = subtract(over, rest, s[2], s[3], D)
    end
  end
  st.us, st.rem = add(us, rem, over, rest, D)
  return cut
end

-- forgave returns how many units of an operation were forgiven when the batch was
-- applied.
local function forgave(index, most)
  local units = match(',' .. forgiven .. ',', ',' .. int(index) .. ':(%d+),')
  return units and math.min(tonumber(units), most) or 0
end

-- A kind books an operation, unless it is only to say what there is, and returns the
-- counter's line of the reply.
local kinds = {}

function kinds.f(key, op, apply, index)
  local rule, D = op.rule, op.rule.D
  local st = read_funnel(key, rule.rate, now)
  local raise, back, cut = op.raise, op.back, 0
  if apply and raise then
    local us, rem = add(now, 0, raise.us, raise.rem, D)
    if us < 0 then
      us, rem = 0, 0 -- empty, for nobody knows how long
    end
    raise_funnel(st, raise.gen, raise.born, us, rem)
  end
  -- What is handed back was booked by earlier batches.
  local comes_off = back and back.gen >= st.reset
  if comes_off then
    -- Those who have booked behind, without the sender knowing, keep their times:
    -- to lower the level would let newcomers in at the same times once more. And
    -- where there is nothing to take off no generation begins: it would clear what
    -- nodes know that Redis has lost.
    local us, rem = level(st.us, st.rem, now)
    comes_off = (us > 0 or rem > 0) and not less(back.top_us, back.top_rem, us, rem)
  end
  if apply and comes_off then
    st.us, st.rem = subtract(st.us, st.rem, back.us, back.rem, D)
    renew(st, now)
  end
  if apply and op.units > 0 then
    local us, rem = add(now, 0, op.ahead_us, op.ahead_rem, D)
    local hadus, hadrem = st.us, st.rem
    st.us, st.rem = add(st.us, st.rem, op.us, op.rem, D)
    st.us, st.rem = later(st.us, st.rem, us, rem)
    if op.debt then
      cut = forgive(st, hadus, hadrem, op.debt, rule)
    end
    st.born = now
  end
  local empty = not less(op.units > 0 and now - MEMORY or now, 0, st.us, st.rem) and st.gen == 0 and st.absent
  if apply and (op.units > 0 or raise or comes_off) and not empty then
    write_funnel(key, st, rule.rate, now, rule.horizon)
  else
    remember(key, st.us + 1, now, st.gen, rule.horizon)
  end
  local line = (st.converted and 'g ' or 'f ') .. int(st.gen) .. ' ' .. int(st.born) .. ' ' .. pair(st.us, st.rem)
  if not op.debt then
    return line
  end
  if not apply then
    cut = forgave(index, op.debt.units)
  elseif cut > 0 then
    cuts[#cuts + 1] = int(index) .. ':' .. int(cut)
  end
  return line .. ' ' .. int(cut)
end

function kinds.w(key, op, apply)
  local rule, raise, back = op.rule, op.raise, op.back
  local st = read_window(key, rule, now)
  if apply and raise then
    local known = { n = {}, l = {} }
    place(known, raise.list, rule.width, rule, now)
    raise_window(st, raise.gen, raise.born, known, rule.kept)
  end
  local comes_off = back and back.gen >= st.reset
  if apply and comes_off then
    local less = { n = {}, l = {} }
    place(less, back.list, rule.width, rule, now)
    comes_off = false -- see kinds.f
    for age = 0, rule.kept do
      if less.n[age] and st.n[age] then
        -- 0 is left out of the list of buckets
        st.n[age] = st.n[age] > less.n[age] and st.n[age] - less.n[age] or nil
        comes_off = true
      end
    end
    if comes_off then
      renew(st, now)
    end
  end
  if apply and op.units > 0 then
    place(st, op.list, rule.width, rule, now)
    st.born = now
  end
  local list
  if apply and (op.units > 0 or raise or comes_off) and (next(st.n) or st.gen > 0 or not st.absent) then
    list = write_window(key, st, rule, now)
  else
    list = buckets(st, rule, now)
    remember(key, now, now, st.gen, rule.horizon)
  end
  return (st.converted and 'v ' or 'w ') .. int(st.gen) .. ' ' .. int(st.born) .. list
end

-- fails reports whether an operation is among those in a list.
local function fails(list, index)
  return find(',' .. list .. ',', ',' .. int(index) .. ',', 1, true)
end

local long = {}

-- ledger returns what the text of a ledger says: the last seq, its nonce, the total, the
-- failed operations and what was forgiven. One that cannot be read counts as lost; the next
-- batch overwrites it.
function long.ledger(v)
  v = v or guard(try, 'GET', KEYS[1]) -- MGET says nothing of one of another type
  local seq, nonce, total, failed, forgiven = match(v or '', '^(%d+) (%x+) (%d+) ([-%d,]+) ([-%d:,]+)$')
  if not seq then
    return 0, '', 0, '', ''
  end
  local last, sum = guard(num, seq), guard(num, total)
  if not last or not sum or last > TOP / 2 then -- no node counts that far: forged
    return 0, '', 0, '', ''
  end
  return last, nonce, sum, failed, forgiven
end

-- ending returns where the line at pos ends.
local function ending(pos)
  return find(ops, '\n', pos, true) or #ops + 1
end

-- blame returns the line of an operation for which pcall caught why.
function long.blame(why, index)
  -- A duplicate has been booked the first time, unless the ledger says that it failed.
  local letter = (apply == false and not fails(failed, index)) and 'b ' or 'e '
  broken[#broken + 1] = int(index)
  if type(why) == 'table' then
    why = why.err
  end
  why = string.gsub(tostring(why), '^!', '')
  return letter .. string.gsub(why, '\n', ' ')
end

local function book(key, line, index)
  if not apply and fails(failed, index) then
    bad('failed when the batch was applied')
  end
  local op = read_op(line)
  return kinds[op.kind](key, op, apply, index)
end

-- book works on the operation in the line at pos, on a key at which v was found, or nil. It
-- returns the line of the reply, and where that of the operation ends. An operation
-- fails alone, whatever goes wrong: the ledger says already that the batch was applied.
function long.book(key, pos, index, v, does, was_failed, was_forgiven)
  apply, failed, forgiven = does, was_failed, was_forgiven
  rules = rules or read_rules(ARGV[7])
  ahead[key] = v
  local stop = ending(pos)
  local done, line = pcall(book, key, sub(ops, pos, stop - 1), index)
  return done and line or long.blame(line, index), stop
end

-- correct writes the ledger anew if it must say more than that all was booked. It returns
-- the total.
function long.correct(total, sum, sum_text)
  if not broken[1] and not cuts[1] then
    return sum_text
  end
  local failures = broken[1] and table.concat(broken, ',') or '-'
  if broken[1] then
    local index = 0
    sum = total
    for line in string.gmatch(ops, '([^\n]*)\n') do
      if not fails(failures, index) then
        sum = sum + match(line, '^%a%d+ (%d+)')
      end
      index = index + 1
    end
    sum_text = int(math.min(sum, MAX))
  end
  local forgave = cuts[1] and table.concat(cuts, ',') or '-'
  call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[5] .. ' ' .. sum_text .. ' ' .. failures .. ' ' .. forgave, 'PX', ARGV[4])
  return sum_text
end

return long
