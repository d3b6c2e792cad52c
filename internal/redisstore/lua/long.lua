-- The slow path of batch.lua, for rare states and operations. With base.lua, lib.lua,
-- lib_funnel.lua and lib_window.lua before it, this is the body of a function, make_long, so that
-- calls which use only the fast paths do not pay for it. It must not share locals with
-- batch.lua: each would be an allocation in every call.

local now, slack, MEMORY = ...
SLACK = slack
local ops = ARGV[8]
local rules, apply, failed, forgiven -- by name; whether the batch is applied now; lists from the ledger
local cuts, broken = {}, {} -- for the ledger: units forgiven, and operations that failed

-- merge moves two states of a counter into the later generation: st, and one of which gen and
-- born are given. It returns for each whether its content is valid there: if it is of that
-- generation or was born since it began. Older content was cleared by that generation. If the
-- generation or the given born is later than now, the clock has been set back: then st.born
-- says nothing, and the content of st is valid.
local function merge(st, gen, born, now)
  local top = math.max(st.gen, gen)
  local mine = st.gen == top or st.born >= top or math.max(top, born) > now
  local theirs = gen == top or born >= top
  if st.gen < top then
    -- The latest reset is not known here. Assume that it began this generation:
    -- refunds of units from before are dropped, and these units stay counted.
    st.gen, st.reset = top, top
  end
  st.born = math.max(mine and st.born or 0, theirs and born or 0)
  return mine, theirs
end

local function restore_funnel(st, gen, born, us, rem)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.us, st.rem = 0, 0
  end
  if theirs then
    st.us, st.rem = later(st.us, st.rem, us, rem)
  end
end

local function restore_window(st, gen, born, known)
  local mine, theirs = merge(st, gen, born, now)
  if not mine then
    st.n, st.l, st.ages = {}, {}, {}
  end
  for _, age in ipairs(theirs and known.ages or {}) do
    if not st.l[age] then
      st.mixed, st.ages[#st.ages + 1] = true, age
    end
    st.n[age] = math.max(st.n[age] or 0, known.n[age])
    st.l[age] = math.max(st.l[age] or 0, known.l[age])
  end
end

-- The fields of operations by kind: base are those that each has, the others those of groups.
local fields = {
  f = {
    base = { 'units', 'us', 'rem', 'ahead_us', 'ahead_rem' }, r = { 'gen', 'born', 'us', 'rem' },
    c = { 'us', 'rem', 'units' }, a = { 'us', 'full' }, b = { 'us', 'rem', 'gen', 'top_us', 'top_rem' },
  },
  w = { base = { 'units' }, r = { 'gen', 'born' }, b = { 'gen' } },
}
local groups = { r = 'restore', c = 'debt', a = 'ahead', b = 'back' }

-- read returns the numbers in a text by the names of fields. The rest is a list of buckets,
-- which a leaky bucket must not have.
local function read(kind, text, names)
  local t, at = {}, 1
  for _, name in ipairs(names or bad('malformed operation')) do
    local _, stop, number = find(text, '^ (%-?%d+)', at)
    t[name], at = tonumber(number) or bad('malformed operation'), (stop or 0) + 1
  end
  t.list = sub(text, at)
  return kind == 'w' and t or t.list == '' and t or bad('malformed operation')
end

-- read_op reads the operation in a line. An error in it is one of its key alone.
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

-- forgive subtracts units of an outage from st, as far as they lifted it above a ceiling
-- and above (us, rem), where it was before. It returns how many whole units that are.
local function forgive(st, us, rem, debt, rule)
  local D = rule.D
  us, rem = later(us, rem, add(now, 0, debt.us, debt.rem, D))
  if not less(us, rem, st.us, st.rem) then
    return 0
  end
  local over, rest = subtract(st.us, st.rem, us, rem, D)
  -- Exact division by the cost of a unit, with the costs of 1, 2, 4, 8 … units.
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

-- A function of kinds books an operation, or only reads the counter if apply is false. It
-- returns the counter's line of the reply.
local kinds = {}

function kinds.f(key, op, apply, index)
  local rule, D = op.rule, op.rule.D
  local st = read_funnel(key, rule.rate, now)
  local restore, back, cut = op.restore, op.back, 0
  if apply and restore then
    local us, rem = add(now, 0, restore.us, restore.rem, D)
    if us < 0 then
      us, rem = 0, 0 -- empty for an unknown time
    end
    restore_funnel(st, restore.gen, restore.born, us, rem)
  end
  -- Refunds come before units: they are of units that earlier batches booked.
  local subtracted = back and back.gen >= st.reset
  if subtracted then
    -- Callers on other nodes that have booked behind keep their times: a lower level
    -- would admit new callers at the same times once more. And if nothing is
    -- subtracted, no generation begins: a new one discards views that are needed to
    -- restore lost data.
    local us, rem = level(st.us, st.rem, now)
    subtracted = (us > 0 or rem > 0) and (st.waiting <= now or not less(back.top_us, back.top_rem, us, rem))
  end
  if apply and subtracted then
    st.us, st.rem = subtract(st.us, st.rem, back.us, back.rem, D)
    refunded(st, now)
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
  if apply and op.ahead then
    wait(st, now, now + op.ahead.us, op.ahead.full)
  end
  local empty = not less(op.units > 0 and now - MEMORY or now, 0, st.us, st.rem) and st.gen == 0 and st.absent
  if apply and (op.units > 0 or restore or subtracted) and not empty then
    write_funnel(key, st, rule.rate, now, rule.horizon)
  else
    remember(key, st.us + 1, now, st.gen, rule.horizon)
  end
  local line = (st.converted and 'g ' or 'f ') .. int(st.gen) .. ' ' .. int(st.born) .. ' ' .. int(st.us) .. ' ' .. int(st.rem)
  if op.debt then
    if not apply then
      cut = forgave(index, op.debt.units)
    elseif cut > 0 then
      cuts[#cuts + 1] = int(index) .. ':' .. int(cut)
    end
    line = line .. ' ' .. int(cut)
  end
  return st.waiting > now and line .. ';' .. int(st.waiting) or line
end

function kinds.w(key, op, apply)
  local rule, restore, back = op.rule, op.restore, op.back
  local st = read_window(key, rule, now)
  if apply and restore then
    local known = { n = {}, l = {}, ages = {} }
    place(known, restore.list, rule.width, rule, st.at)
    restore_window(st, restore.gen, restore.born, known)
  end
  local subtracted = back and back.gen >= st.reset
  if apply and subtracted then
    local less = { n = {}, l = {}, ages = {} }
    place(less, back.list, rule.width, rule, st.at)
    subtracted = false -- see kinds.f
    for _, age in ipairs(less.ages) do
      if st.n[age] then
        -- a bucket of 0 units is not listed
        st.n[age] = st.n[age] > less.n[age] and st.n[age] - less.n[age] or nil
        subtracted = true
      end
    end
    if subtracted then
      renew(st, now)
    end
  end
  if apply and op.units > 0 then
    place(st, op.list, rule.width, rule, st.at, st.early)
    st.born = now
  end
  local list
  if apply and (op.units > 0 or restore or subtracted or st.moved) and (next(st.n) or st.gen > 0 or not st.absent) then
    list = write_window(key, st, rule)
  else
    list = buckets(st, rule)
    remember(key, now, now, st.gen, rule.horizon)
  end
  return (st.converted and 'v ' or 'w ') .. int(st.gen) .. ' ' .. int(st.born) .. list
end

-- fails reports whether an operation is in a list of indexes.
local function fails(list, index)
  return find(',' .. list .. ',', ',' .. int(index) .. ',', 1, true)
end

local long = {}

-- ledger returns the fields in the text of a ledger: the last seq, its nonce, the total, the
-- failed operations and what was forgiven. One that cannot be read counts as lost; the next
-- batch overwrites it.
function long.ledger(v)
  v = v or guard(try, 'GET', KEYS[1]) -- MGET returns nothing for another type
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

-- blame returns the reply line of an operation that failed with the error why.
function long.blame(why, index)
  -- An operation of a duplicate was booked the first time, unless the ledger lists it as failed.
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

-- book executes the operation in the line at pos, on a key with the value v, nil if none was
-- read. It returns the line of the reply, and where that of the operation ends. Any error
-- fails only this operation: the ledger already says that the batch was applied.
function long.book(key, pos, index, v, ...)
  rules, apply, failed, forgiven = ...
  ahead[key] = v
  local stop = find(ops, '\n', pos, true) or #ops + 1
  local done, line = pcall(book, key, sub(ops, pos, stop - 1), index)
  return done and line or long.blame(line, index), stop
end

-- list returns the text of a list in the ledger.
local function list(of)
  return of[1] and table.concat(of, ',') or '-'
end

-- correct writes the ledger again if operations have failed or units were forgiven. total is that
-- before this batch. Units of operations that have failed are not added to it.
function long.correct(total)
  if not broken[1] and not cuts[1] then
    return
  end
  local failures, index = list(broken), 0
  for line in string.gmatch(ops, '([^\n]*)\n') do
    if not fails(failures, index) then
      total = math.min(total + match(line, '^%a%d+ (%d+)'), MAX)
    end
    index = index + 1
  end
  call('SET', KEYS[1], table.concat({ ARGV[1], ARGV[5], int(total), failures, list(cuts) }, ' '), 'PX', ARGV[4])
end

return long
