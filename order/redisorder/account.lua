-- Returns what is known of a key. lib.lua stands in front of it and says what is
-- stored where. It changes nothing.
--
-- KEYS         h, z, a of the partition
--
-- ARGV[1]      the key
--
-- Returns nothing if there is no such key. Otherwise the time in microseconds; when
-- the message came that is next, or 0; the row of the key; and for each epoch its
-- number and its row: the active one, those that wait, and the last of those that
-- have ended.

H, Z, A = KEYS[1], KEYS[2], KEYS[3]
local name = ARGV[1]
local k = open(name)
if k.new then return {} end
local oldest = call('ZSCORE', A, name)
local reply = {format('%.0f', now), oldest and format('%.0f', tonumber(oldest)) or '0', get('h' .. name)}
if k.bad then return reply end

local function tell(number)
  reply[#reply + 1] = number
  reply[#reply + 1] = get('e' .. name .. '\0' .. number) or ''
end

tell(k.active)
for i = 1, #k.waiting, 19 do tell(sub(k.waiting, i, i + 18)) end
local prefix = 'e' .. name .. '\0'
for _, member in ipairs(call('ZREVRANGEBYLEX', Z, '(' .. prefix .. k.active, '[' .. prefix, 'LIMIT', 0, 16)) do
  tell(sub(member, -19))
end
return reply
