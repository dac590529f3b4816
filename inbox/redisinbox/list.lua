-- Finds and reads records. lib.lua stands in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   what to do:
--   i   ARGV[2] is an ID: the records of the event
--   z   ARGV[2] is a prefix of members of z that end with a number
--   o   those whose outside bodies may be erased
--   r   ARGV[4...] are numbers: their rows
-- ARGV[3]   the lowest number (16 digits)
-- ARGV[4]   how many numbers
--
-- Returns numbers, ascending; with r the time in microseconds, and then for each
-- number that is there the number and its rows s, r, b, l and a. With o the first value
-- says whether some whose time has come are not among them yet: ask again.
--
-- A repeated call reads again.

local what, selector, from = ARGV[1], ARGV[2], ARGV[3]

if what == 'r' then
  local reply = {format('%d', now)}
  for i = 4, #ARGV do
    if call('HEXISTS', H, 's' .. ARGV[i]) == 1 then tell(ARGV[i], reply) end
  end
  return reply
end

local n, numbers = whole(ARGV[4]), {}
if what == 'i' then
  local ok, e = pcall(readEvent, selector)
  if not ok then return redis.error_reply('PAWLROW not of this version') end
  for _, one in ipairs(e and e.list or {}) do
    if one.x >= from then numbers[#numbers + 1] = one.x end
  end
  table.sort(numbers)
  while #numbers > n do table.remove(numbers) end
  return numbers
end

if what == 'o' then
  local due = call('ZRANGEBYLEX', Z, '[u', '(u' .. time(now + 1), 'LIMIT', 0, 1000)
  for _, member in ipairs(due) do
    call('ZREM', Z, member)
    call('ZADD', Z, 0, 'o' .. sub(member, -16))
  end
  numbers[1], selector = #due == 1000 and '1' or '0', 'o'
end
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. selector .. from, '(' .. selector .. ':', 'LIMIT', 0, n)) do
  numbers[#numbers + 1] = sub(member, -16)
end
return numbers
