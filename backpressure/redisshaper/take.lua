-- Decides on the asks of one shaper, in their order, each wholly or not at all.
--
-- KEYS     a row for each line, the most important first
--
-- ARGV[1]  how long a row lives after this, in milliseconds: by then every bucket is
--          full and no line is short, as if there were no row
-- then for each line: its importance, rate and burst of what others may take, rate
-- and burst of its floor; rates are tokens a second
-- then for each ask: the place of its line, and its cost
--
-- Returns for each ask: -1 admitted, -2 admitted with another line's tokens, or the
-- microseconds until the line has the tokens by itself.
--
-- A row is a string: 2 (the layout version), the tokens that others may take, those of
-- the floor, the time they were counted, until when the line is short. A time is that
-- of the server, its seconds and microseconds; 0 0 is never. What is not such a row is
-- taken for none, and replaced.
--
-- Atomic because Redis runs a script alone. Sent twice it takes twice: less is
-- admitted then, never more.

local floor, min, tonumber = math.floor, math.min, tonumber
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local n = #KEYS

-- A line is short for a second.
local function short(l)
  l.short, l.till = now + 1000000, ' ' .. time[1] + 1 .. ' ' .. time[2]
end

local lines, changed = {}, {}
local rows = redis.call('MGET', unpack(KEYS))
for i = 1, n do
  local a = 5 * i - 3
  local l = {
    importance = tonumber(ARGV[a]),
    rate = tonumber(ARGV[a + 1]), burst = tonumber(ARGV[a + 2]),
    frate = tonumber(ARGV[a + 3]), fburst = tonumber(ARGV[a + 4]),
    short = 0, till = ' 0 0',
  }
  lines[i] = l
  local rest, ground, s, us, till, shorts, shortus
  if rows[i] then
    rest, ground, s, us, till, shorts, shortus = string.match(rows[i], '^2 (%S+) (%S+) (%d+) (%d+)( (%d+) (%d+))$')
  end
  if rest then
    local took = now - (s * 1000000 + us)
    if took < 0 then -- the clock went back: count from there, and make nothing of it
      took, changed[i] = 0, true
    end
    l.rest = min(l.burst, rest + took * l.rate / 1000000)
    l.floor = min(l.fburst, ground + took * l.frate / 1000000)
    l.short, l.till = shorts * 1000000 + shortus, till
    if l.short > now + 1000000 then short(l) end
  else
    l.rest, l.floor = l.burst, l.fburst
  end
end

-- What a line may not touch of what others may take: half, if one of them is short.
local function kept(i)
  for j = 1, i - 1 do
    if lines[j].importance > lines[i].importance and lines[j].short > now then return true end
  end
  return false
end

local function take(i, cost, half)
  local l = lines[i]
  local rest = l.rest
  if half then rest = rest - floor((l.burst + 1) / 2) end
  if rest >= cost then
    l.rest = l.rest - cost
  elseif l.floor >= cost then
    l.floor = l.floor - cost
  else
    rest = floor(rest)
    if rest <= 0 or l.floor < cost - rest then return false end
    l.floor = l.floor - (cost - rest)
    l.rest = l.rest - rest
  end
  changed[i] = true
  return true
end

local function borrow(i, cost, half)
  local l = lines[i]
  for j = n, i + 1, -1 do
    local from = lines[j]
    if from.importance < l.importance then
      short(l)
      changed[i] = true
      local rest = from.rest
      if half then rest = rest - floor((from.burst + 1) / 2) end
      if rest >= cost then
        from.rest, changed[j] = from.rest - cost, true
        return true
      end
    end
  end
  return false
end

-- How long it is until a line's buckets hold so many whole tokens.
local function wait(l, cost)
  local missing
  if l.fburst == 0 then
    missing = cost - l.rest
  else
    missing = cost - floor(l.rest) - floor(l.floor)
  end
  if missing <= 0 then return 1000 end -- they are kept for another line
  return floor(missing / (l.rate + l.frate) * 1000000) + 1
end

local answers = {}
for a = 5 * n + 2, #ARGV, 2 do
  local i, cost = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local half = kept(i)
  local answer
  if take(i, cost, half) then
    answer = -1
  elseif borrow(i, cost, half) then
    answer = -2
  else
    answer = wait(lines[i], cost)
  end
  answers[#answers + 1] = answer
end

for i in pairs(changed) do
  local l = lines[i]
  local row = '2 ' .. l.rest .. ' ' .. l.floor .. ' ' .. time[1] .. ' ' .. time[2] .. l.till
  redis.call('SET', KEYS[i], row, 'PX', ARGV[1])
end
return answers
