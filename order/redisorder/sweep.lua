-- Forgets what need not be remembered any longer. lib.lua stands in front of it and
-- says what is stored where.
--
-- KEYS         h, z, d, a, x, y of the partition
--
-- ARGV[1]      window
-- ARGV[2, 3]   how long a message with an ID is kept after it ended, and a record of
--              a gap after it was resolved, in microseconds
-- ARGV[4]      how many to look at
-- ARGV[5]      how many entries of x to pass over
--
-- Returns how many were looked at; how many were forgotten; how many entries of x
-- to pass over the next time; and then, in one string for each, nonce, ID, NUL and
-- key of messages that were forgotten.
--
-- Atomic because Redis runs a script alone. What was forgotten is not there for a
-- repeated call.

H, Z, D, A, X, Y = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local span, budget, pass = format('%019d', tonumber(ARGV[1])), tonumber(ARGV[4]), tonumber(ARGV[5])
local looked, forgotten, gone = 0, 0, {}

for _, place in ipairs(call('ZRANGEBYSCORE', Y, '-inf', format('%.0f', now - ARGV[3]), 'LIMIT', 0, budget)) do
  call('ZREM', Y, place)
  call('ZREM', Z, 'g' .. place)
  del('g' .. place)
  looked, forgotten = looked + 1, forgotten + 1
end

-- Forgets one message, or its body where the window still holds it.
local function look(k, e, number, bound)
  looked = looked + 1
  local field = e.handle .. ':' .. number
  if number < bound then
    if cold().forget(k.name, e.handle, e.epoch, number, gone) then forgotten = forgotten + 1 end
  else
    del('b' .. field)
  end
end

local function waits(e, number)
  local row = get('m' .. e.handle .. ':' .. number)
  local state = row and sub(row, 18, 18)
  return state == 'l' or state == 'k', state
end

-- Looks at an entry; returns whether it is still needed.
local function entry(member, score)
  if sub(member, 1, 1) == 'f' then -- whoever it turned away is long gone
    if tonumber(score) > now - 6e8 then return true end
    looked = looked + 1
    call('ZREM', X, member)
    del(member)
    return false
  end
  local kind, at, from, to = sub(member, 1, 1), sub(member, 2, 20), sub(member, 21, 39), sub(member, 40, 58)
  local handle, name = match(sub(member, 59), '^(%d+):(.*)$')
  local k = open(name)
  local e = not k.bad and epoch(k, at)
  if k.bad then return true end
  if not e or e.handle ~= handle then -- the key was erased
    call('ZREM', X, member)
    looked = looked + 1
    return false
  end
  local bound = minus(plus(e.cursor, 1), span)
  if kind == 's' then
    local waiting = waits(e, from)
    if not waiting then look(k, e, from, bound) end
    if not waiting and from >= bound then return true end
    call('ZREM', X, member)
    call('ZREM', Z, 'y' .. name .. '\0' .. at .. from)
    return false
  end
  local reached = from
  cold().rows(e, from, to, function(first, last)
    while first < last and looked < budget do
      local _, state = waits(e, first)
      if state == 'b' then look(k, e, first, bound) else looked = looked + 1 end
      first = plus(first, 1)
      reached = first
    end
    if first < last then to = first end
  end)
  reached = looked < budget and to or reached
  local rest = lesser(reached, bound)
  if rest > from or reached == to and to <= bound then
    call('ZREM', X, member)
    local _, _, last = 0, 0, sub(member, 40, 58)
    if rest >= last then return false end
    call('ZADD', X, score, 'd' .. at .. rest .. last .. sub(member, 59))
  end
  return true
end

local last = format('%.0f', now - ARGV[2])
if looked < budget then
  local list = call('ZRANGEBYSCORE', X, '-inf', last, 'WITHSCORES', 'LIMIT', pass, budget - looked)
  local i = 1
  while i < #list and looked < budget do
    if entry(list[i], list[i + 1]) then pass = pass + 1 end
    i = i + 2
  end
  if i > #list and #list / 2 < budget then pass = 0 end
end
write()
local reply = {looked, forgotten, pass}
for _, id in ipairs(gone) do reply[#reply + 1] = id end
return reply
