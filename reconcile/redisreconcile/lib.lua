-- What all scripts of this package share. It stands in front of each of them, behind it
-- comes the text of a room: ledger.lua, timeline.lua or checks.lua.
--
-- Each room has two keys in each partition: a hash H of rows, told apart by the first
-- letter of the field, and a sorted set Z by bytes, likewise. Rows begin with the version
-- of their layout.
--
-- Times are microseconds in Lua numbers, exact until the year 2255, and 16 digits in
-- members. Of the numbers that callers send, only spans and limits pass through a Lua
-- number; tokens and versions are compared as text.
--
-- Redis 7.0 may apply the first part of a script's effects once more, before those of the
-- step that was sent again, when it was killed while it wrote them (see the package
-- comment). So what is written is never an increment, new members are added before the
-- row that needs them and old ones removed after it, and whoever finds a row by a member
-- with a time in it looks whether the row says so.

local call, sub, format, match = redis.call, string.sub, string.format, string.match

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local H, Z
local function use(partition) H, Z = KEYS[2 * partition - 1], KEYS[2 * partition] end
use(1)

local NOBODY = string.rep('0', 32) -- no nonce
local NONE = '*' -- no digest, no time
local MAXLOG, FIRSTS = 32, 4 -- of the entries of a log, and of the first that are kept
local BAD = {} -- the error that a row is not of this version

local function time(n) return format('%016d', n) end
local function whole(s) return tonumber(s, 10) end -- not octal, whatever it begins with

-- Runs one item of a batch. It reads before it writes, so an item whose rows are not
-- of this version changes nothing, and is answered x.
local function item(f, ...)
  local ok, answer = pcall(f, ...)
  if ok then return answer end
  if answer == BAD then return 'x' end
  error(answer, 0)
end

-- Where the memory is full, a script may write once it has written something: this, which
-- changes nothing. What is there can be ended then, and swept.
local function evenIfFull() call('ZREM', Z, '') end

local function add(members)
  if #members == 0 then return end
  local scored = {}
  for i, member in ipairs(members) do scored[2 * i - 1], scored[2 * i] = 0, member end
  call('ZADD', Z, unpack(scored))
end

local function drop(members)
  if #members > 0 then call('ZREM', Z, unpack(members)) end
end

-- The members that are in one list and not in the other.
local function without(list, other)
  local there, rest = {}, {}
  for _, member in ipairs(other) do there[member] = true end
  for _, member in ipairs(list) do
    if not there[member] then rest[#rest + 1] = member end
  end
  return rest
end

-- A log is entries one behind the other; each begins with how long it is. Of more than
-- MAXLOG the first ones and the last are kept. Returns the log, how many entries it has,
-- and how many were left out.
local function logged(log, n, entry)
  entry = format('%d ', #entry) .. entry
  if n < MAXLOG then return log .. entry, n + 1, 0 end
  local at, cut = 1, nil
  for i = 1, FIRSTS + 1 do
    local size, from = match(log, '^(%d+) ()', at)
    if not size then error(BAD) end
    if i == FIRSTS + 1 then cut = at end
    at = from + whole(size)
  end
  return sub(log, 1, cut - 1) .. sub(log, at) .. entry, n, 1
end
