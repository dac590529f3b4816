-- Lists gaps or parked messages. lib.lua stands in front of it and says what is
-- stored where. It changes nothing.
--
-- KEYS         h, z of the partition
--
-- ARGV[1]      letters of the lists in z
-- ARGV[2, 3]   where they begin, behind the letter: [ or (, and the rest
-- ARGV[4]      where they end, not included, likewise; nothing: at the end
-- ARGV[5]      the most of each list
--
-- Returns the time in microseconds, and for each entry its letter, its place (key,
-- NUL, epoch, number), and two values:
--   o       to, when it opened, since when the cursor is there, alerted, asked, old;
--           nothing
--   g, q    the row of the record; nothing
--   k       attempts and error, with the row behind a length of 8 digits; body

H, Z = KEYS[1], KEYS[2]
local reply = {format('%.0f', now)}

local function entry(letter, place)
  local k, number, second = open(sub(place, 1, -40)), sub(place, -19), ''
  local e, first = not k.bad and epoch(k, sub(place, -38, -20)), nil
  if letter == 'g' or letter == 'q' then
    first = get('g' .. place)
  elseif e and letter == 'o' then
    first = cold().tellGap(k, e)
  elseif e then
    local field = e.handle .. ':' .. number
    local row, attempts, message, _ = get('m' .. field), format('%.0f', e.attempts), e.error
    local extra = get('w' .. field)
    if extra then _, _, attempts, message = cold().readLate(extra) end
    first = row and format('%08d', #row) .. row .. attempts .. ' ' .. message
    second = get('b' .. field) or ''
  end
  if not first then return end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = letter, place, first, second
end

for letter in string.gmatch(ARGV[1], '.') do
  local stop = '(' .. string.char(string.byte(letter) + 1)
  if ARGV[4] ~= '' then stop = '(' .. letter .. ARGV[4] end
  for _, member in ipairs(call('ZRANGEBYLEX', Z, ARGV[2] .. letter .. ARGV[3], stop, 'LIMIT', 0, tonumber(ARGV[5]))) do
    entry(letter, sub(member, 2))
  end
end
return reply
