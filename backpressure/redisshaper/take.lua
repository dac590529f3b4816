-- Decides on the asks of one shaper, in their order, each wholly or not at all.
--
-- KEYS[1]  a hash with a row for each line
--
-- ARGV[1]  how many lines there are, the most important first
-- ARGV[2]  how long the hash lives after this, in milliseconds: by then every
--          bucket is full and no line is short, as if there were no hash
-- then for each line: its name, its importance, rate and burst of what others may
-- take, rate and burst of its floor; rates are tokens a second
-- then for each ask: the place of its line, and its cost
--
-- Returns for each ask: -1 admitted, -2 admitted with another line's tokens, or the
-- microseconds until the line has the tokens by itself.
--
-- A row is a string: 1 (the layout version), the tokens that others may take, those
-- of the floor, the time they were counted, until when the line is short. Times are
-- microseconds of the server.
--
-- Atomic because Redis runs a script alone. Sent twice it takes twice: less is
-- admitted then, never more.

local floor, min = math.floor, math.min
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local n = tonumber(ARGV[1])

local lines, names = {}, {}
for i = 1, n do
  local a = 6 * i - 3
  names[i] = ARGV[a]
  lines[i] = {
    importance = tonumber(ARGV[a + 1]),
    rate = tonumber(ARGV[a + 2]), burst = tonumber(ARGV[a + 3]),
    frate = tonumber(ARGV[a + 4]), fburst = tonumber(ARGV[a + 5]),
  }
end
local rows = redis.call('HMGET', KEYS[1], unpack(names))
local changed = {}
for i = 1, n do
  local l, rest, ground, last, short = lines[i], nil, nil, nil, nil
  if rows[i] then
    rest, ground, last, short = string.match(rows[i], '^1 (%S+) (%S+) (%S+) (%S+)$')
  end
  if last then
    local took = now - last
    if took < 0 then -- the clock went back: count from there, and make nothing of it
      took, changed[i] = 0, true
    end
    l.rest = min(l.burst, rest + took * l.rate / 1000000)
    l.floor = min(l.fburst, ground + took * l.frate / 1000000)
    l.short = min(tonumber(short), now + 1000000)
  else
    l.rest, l.floor, l.short = l.burst, l.fburst, 0
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
      l.short, changed[i] = now + 1000000, true
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
for a = 6 * n + 3, #ARGV, 2 do
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

local row = {}
for i in pairs(changed) do
  local l = lines[i]
  row[#row + 1] = names[i]
  row[#row + 1] = string.format('1 %.17g %.17g %.0f %.0f', l.rest, l.floor, now, l.short)
end
if #row > 0 then
  redis.call('HSET', KEYS[1], unpack(row))
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return answers
