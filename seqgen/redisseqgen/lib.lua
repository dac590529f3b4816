-- What the scripts of this package share. It stands in front of each of them.
--
-- A partition has three keys:
--   h   a hash with a row for each sequence; its field is <scope>:<key>
--   v   a sorted set by bytes of voids: <scope>:<key> NUL epoch lo hi (19 digits
--       each), kind (c certain, o orphaned), reason, token that owned what is
--       orphaned (20), when it became void and when it may be forgotten (16 each,
--       in microseconds)
--   x   the same voids, by the time when they may be forgotten
--
-- A row: 1 (the layout version), epoch, last (19 digits each), mode, token (20),
-- owned, used (19), and then the log, the newest last: for each step its nonce (16
-- bytes), epoch, lo and hi (19 each), and token (20). lo is zero for a bump; the
-- epoch too, for a nonce that is spent.
--
-- Numbers, epochs and tokens of callers are strings of fixed width. They are
-- compared as strings, and counted in two parts, so that a Lua number never holds
-- more than it can. Times are microseconds in Lua numbers, exact until the year 2255.

local call, sub, format = redis.call, string.sub, string.format

local H, V, X = KEYS[1], KEYS[2], KEYS[3]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local ZERO, LAST, NOBODY = '0000000000000000000', '9223372036854775807', '00000000000000000000'
local ONE = '0000000000000000001'

local function whole(s) return tonumber(s, 10) end -- not octal, whatever it begins with

-- a + n, for a Lua number n, which may be negative
local function plus(a, n)
  local high, low = whole(sub(a, 1, -10)), whole(sub(a, -9)) + n
  local carry = math.floor(low / 1e9)
  return format('%0' .. (#a - 9) .. 'd%09d', high + carry, low - carry * 1e9)
end

local function lesser(a, b) if a < b then return a end return b end
local function greater(a, b) if a > b then return a end return b end

local ENTRY, LOG, LOGSIZE = 93, 81, 32

local function fresh() return {epoch = ONE, last = ZERO, mode = '0', token = NOBODY, owned = false, used = ZERO, log = ''} end

-- The row of a field; nil if there is none, false if it is none of this version.
local function load(field)
  local row = call('HGET', H, field)
  if not row then return nil end
  if sub(row, 1, 1) ~= '1' or #row < LOG - 1 or (#row - LOG + 1) % ENTRY ~= 0 then return false end
  return {epoch = sub(row, 2, 20), last = sub(row, 21, 39), mode = sub(row, 40, 40), token = sub(row, 41, 60),
    owned = sub(row, 61, 61) == '1', used = sub(row, 62, 80), log = sub(row, LOG)}
end

local function save(field, r)
  call('HSET', H, field, '1' .. r.epoch .. r.last .. r.mode .. r.token .. (r.owned and '1' or '0') .. r.used .. r.log)
end

-- Where in the log a nonce is, or nil; and its entry.
local function logged(r, nonce)
  for at = 1, #r.log, ENTRY do
    if sub(r.log, at, at + 15) == nonce then
      return at, {epoch = sub(r.log, at + 16, at + 34), lo = sub(r.log, at + 35, at + 53), hi = sub(r.log, at + 54, at + 72),
        token = sub(r.log, at + 73, at + 92)}
    end
  end
end

local function note(r, nonce, epoch, lo, hi, token)
  r.log = r.log .. nonce .. epoch .. lo .. hi .. token
  if #r.log > LOGSIZE * ENTRY then r.log = sub(r.log, ENTRY + 1) end
end

-- Leaves of an entry its nonce.
local function spend(r, at)
  r.log = sub(r.log, 1, at + 15) .. ZERO .. ZERO .. ZERO .. NOBODY .. sub(r.log, at + ENTRY)
end

local function nextToken(r) return greater(plus(r.token, 1), format('%020d', now)) end

local function readVoid(member)
  local s = sub(member, -111)
  return {epoch = sub(s, 1, 19), lo = sub(s, 20, 38), hi = sub(s, 39, 57), kind = sub(s, 58, 58), reason = sub(s, 59, 59),
    token = sub(s, 60, 79), at = sub(s, 80, 95), member = member}
end

local function addVoid(field, epoch, lo, hi, kind, reason, token, at, expires)
  local member = field .. '\0' .. epoch .. lo .. hi .. kind .. reason .. token .. at .. expires
  call('ZADD', V, 0, member)
  call('ZADD', X, expires, member)
end

local function dropVoid(member)
  call('ZREM', V, member)
  call('ZREM', X, member)
end

-- The voids of an epoch, ascending, of which the lowest number is at most to and the
-- highest not below from; at most limit.
local function voids(field, epoch, from, to, limit)
  local prefix, list = field .. '\0' .. epoch, {}
  local before = call('ZREVRANGEBYLEX', V, '(' .. prefix .. from, '[' .. prefix, 'LIMIT', 0, 1)[1]
  if before then
    local v = readVoid(before)
    if v.hi >= from then list[1] = v end
  end
  for _, member in ipairs(call('ZRANGEBYLEX', V, '[' .. prefix .. from, '(' .. prefix .. to .. '~', 'LIMIT', 0, limit)) do
    if #list < limit then list[#list + 1] = readVoid(member) end
  end
  return list
end

local function expiry(retention) return format('%016d', now + retention) end

-- Records what the owner has not accounted for. Returns the range, or zeros.
local function orphan(field, r, retention, reason)
  if not r.owned or r.used >= r.last then return ZERO, ZERO end
  local lo = plus(r.used, 1)
  addVoid(field, r.epoch, lo, r.last, 'o', reason, r.token, format('%016d', now), expiry(retention))
  return lo, r.last
end
