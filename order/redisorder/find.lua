-- Says where messages are. lib.lua stands in front of it and says what is stored
-- where. It changes nothing.
--
-- KEYS         h, z of the partition
--
-- ARGV[1]      window
-- then three values for each place: an ID, or nothing; the key; epoch and number
--
-- Returns the time in microseconds, and for each place seven values: its state (a
-- letter, see below); key; epoch and number; row and body of the message, or
-- nothing; its attempts and error; from (19) and the row of its gap record, or
-- nothing.
--   ? unknown   d delivered   v void   s skipped   l late   - settled
--   b buffered  p parked      u unordered          m missing

H, Z = KEYS[1], KEYS[2]
local window = tonumber(ARGV[1])
local reply = {format('%.0f', now)}

local function find(id, name, place)
  if id ~= '' then
    local at = get('j' .. id)
    if not at then return {'?', '', '', '', '', '', ''} end
    name, place = sub(at, 55), sub(at, 1, 38)
  end
  local found = {'?', name, place, '', '', '', ''}
  local k, number = open(name), sub(place, 20)
  local e = not k.bad and epoch(k, sub(place, 1, 19))
  if not e then return found end
  local field = e.handle .. ':' .. number
  local row = get('m' .. field)
  found[1] = cold().stateOf(e, number, row, window)
  if row and found[1] ~= '?' and sub(row, 18, 18) ~= 'x' then
    found[4], found[5] = row, get('b' .. field) or ''
    local _, attempts, message = nil, 0, ''
    local extra = get('w' .. field)
    if extra then
      _, _, attempts, message = cold().readLate(extra)
    elseif number == e.cursor then
      attempts, message = format('%.0f', e.attempts), e.error
    elseif number > e.cursor and number < e.begun then
      attempts = 1
    end
    found[6] = attempts .. ' ' .. message
  end
  if found[1] == 's' then
    local prefix = 'g' .. name .. '\0' .. e.epoch
    local record = call('ZREVRANGEBYLEX', Z, '[' .. prefix .. number, '[' .. prefix, 'LIMIT', 0, 1)[1]
    local text = record and get(record)
    if text and number < cold().readRecord(text).to then found[7] = sub(record, -19) .. text end
  end
  return found
end

for i = 2, #ARGV, 3 do
  for _, value in ipairs(find(ARGV[i], ARGV[i + 1], ARGV[i + 2])) do reply[#reply + 1] = value end
end
return reply
