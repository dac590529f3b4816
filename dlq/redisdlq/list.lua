-- Lists letters. lib.lua stands in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   stream
-- ARGV[2]   the lowest number (16 digits)
-- ARGV[3]   most letters
-- ARGV[4]   how many letters to look at
-- ARGV[5]   stop after the letter that brings the bodies and logs to so many bytes
-- ARGV[6]   1: without bodies
-- ARGV[7]   from when on it was put, [8] and before when (16 digits)
-- ARGV[9]   ID, [10] key, [11] state, [12] fingerprint, [13] job: nothing for any
--
-- Returns the number behind which there may be more, 0 if there are none; and for each
-- letter its number and its rows s, b, o, g and f.
--
-- A repeated call reads again.

local stream, lowest, most, look, bytes, heads = ARGV[1], ARGV[2], whole(ARGV[3]), whole(ARGV[4]), whole(ARGV[5]), ARGV[6] == '1'
local from, before, id, key, state, print, job = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13]

local prefixes = {}
if id ~= '' then
  prefixes[1] = field('i', stream, id) .. '\0'
elseif job ~= '' then
  prefixes[1] = field('J', stream, job) .. '\0'
elseif print ~= '' then
  prefixes[1] = field('f', stream, print) .. '\0'
elseif key ~= '' then
  prefixes[1] = field('K', stream, key) .. '\0'
elseif state ~= '' then
  prefixes[1] = field('p', stream, state)
else
  for s = 1, 5 do prefixes[s] = field('p', stream, s) end
end
if lowest < from then lowest = from end -- no letter has a number below the time when it was put

-- How many may have to be looked at: no more than are wanted, if all of them are selected.
local asked = 0
for i = 9, 13 do asked = asked + (ARGV[i] ~= '' and 1 or 0) end
if asked <= 1 and before == string.rep('9', 16) then look = math.min(look, most) end
local numbers = {}
for _, prefix in ipairs(prefixes) do
  for _, member in ipairs(call('ZRANGEBYLEX', Z, '[' .. prefix .. lowest, '(' .. prefix .. ':', 'LIMIT', 0, look + 1)) do
    numbers[#numbers + 1] = sub(member, -16)
  end
end
if #prefixes > 1 then table.sort(numbers) end

local function selected(r)
  local put = time(r.put)
  return (id == '' or r.id == id) and (key == '' or r.key == key) and (state == '' or r.state == state) and
    (print == '' or r.print == print) and (job == '' or r.job == job) and put >= from and put < before
end

local reply, size, found = {'0'}, 0, 0
for i, x in ipairs(numbers) do
  if i > look or found == most or size >= bytes then
    reply[1] = numbers[i - 1]
    break
  end
  local ok, r = pcall(readLetter, stream, x)
  if not ok and r == BAD then return redis.error_reply('PAWLROW not of this version') end
  if not ok then error(r, 0) end
  if r and selected(r) then
    found = found + 1
    tell(stream, x, reply, heads)
    for n = #reply - 8, #reply do size = size + #reply[n] end
  end
end
return reply
