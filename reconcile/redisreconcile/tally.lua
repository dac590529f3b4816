-- Keeps counts. lib.lua and checks.lua stand in front of it and say what is stored where.
--
-- KEYS      ch, cz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   how far the start of a cell may lie from now, in microseconds
-- then four values for each cell: series; start in microseconds; writer, in 32 hexadecimal
-- digits; what was counted
--
-- Returns a string with a letter for each: . kept, or not to be kept; x what is stored is not
-- of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. What is kept is the greatest, so a repeated cell
-- changes nothing.

local kind, keep = ARGV[1], whole(ARGV[2])

-- Of numbers as text, since a Lua number would round them.
local function greater(a, b) return #a > #b or #a == #b and a > b end

local function tally(series, start, writer, n)
  start = whole(start)
  if start < now - keep or start > now + keep then return '.' end
  local name, expires = series .. '\0' .. shifted(start) .. writer, start + keep
  local was = readCell(kind, name)
  if was and was.expires == expires and not greater(n, was.n) then return '.' end
  if was and greater(was.n, n) then n = was.n end
  if was then evenIfFull() end
  add({field('c', kind, name), field('x' .. time(expires), kind, name)})
  call('HSET', H, field('t', kind, name), format('1 %d ', expires) .. n)
  if was and was.expires ~= expires then call('ZREM', Z, field('x' .. time(was.expires), kind, name)) end
  return '.'
end

local letters = {}
for i = 3, #ARGV, 4 do letters[#letters + 1] = item(tally, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
return table.concat(letters)
