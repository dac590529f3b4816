-- What the scripts of this package share. It stands in front of each of them.
--
-- A scope lies in one partition as a whole, so that one clock measures it. A
-- partition has two keys:
--   h   a hash with a row for each worker; its field is <scope> NUL <name>
--   n   the same fields in a sorted set by bytes, to list and to count them
--
-- A row is values without spaces, each followed by a space, in the order of FIELDS,
-- and then the detail. Numbers of callers are strings and are compared as strings;
-- seq has 19 digits, so that it can be ordered. Times and durations are microseconds
-- in Lua numbers, exact until the year 2255. A time that is not set is 0.
--
-- nonce is that of the instance, past those of up to eight before it, 32 characters
-- each, or -. take is the nonce of the last take, or -, and answer what it was
-- answered. settled is 0 while an attempt is under way.

local call, sub, format = redis.call, string.sub, string.format

local H, N = KEYS[1], KEYS[2]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local FIELDS = {'layout', 'token', 'seq', 'interval', 'said', 'position', 'pending', 'busy', 'left',
  'joined', 'since', 'beat', 'stalled', 'quiet', 'running', 'attempts', 'givenup', 'claim', 'nextat', 'acted',
  'turns', 'handler', 'nonce', 'past', 'take', 'answer', 'settled'}
local NUMBERS = {'token', 'joined', 'since', 'beat', 'stalled', 'quiet', 'running', 'attempts', 'claim', 'nextat', 'acted'}
local PAST = 8 * 32

local function whole(n) return format('%.0f', n) end

-- The first values of s, each followed by a space, by the names, and what is behind
-- them; nil if there are not as many.
local function split(s, names)
  local r, at = {}, 1
  for i = 1, #names do
    local e = string.find(s, ' ', at, true)
    if not e then return nil end
    r[names[i]] = sub(s, at, e - 1)
    at = e + 1
  end
  return r, sub(s, at)
end

-- The row of a field; nil if there is none, false if it is none of this version.
local function load(field)
  local s = call('HGET', H, field)
  if not s then return nil end
  local r, detail = split(s, FIELDS)
  if not r or r.layout ~= '1' then return false end
  for i = 1, #NUMBERS do
    r[NUMBERS[i]] = tonumber(r[NUMBERS[i]])
    if not r[NUMBERS[i]] then return false end
  end
  r.detail = detail
  return r
end

local function save(field, r)
  local values = {}
  for i = 1, #FIELDS do
    local v = r[FIELDS[i]]
    values[i] = type(v) == 'number' and whole(v) or v
  end
  call('HSET', H, field, table.concat(values, ' ') .. ' ' .. r.detail)
end

local function next_token(token) return math.max(token + 1, now) end
