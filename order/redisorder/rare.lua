-- The second half of what the scripts share; lib.lua stands in front of it.
--
-- What follows is needed by few steps, and functions take long to make, so they
-- are made when the first of them is needed.
local made
cold = function()
  if made then return made end

  -- A new epoch, not yet one of the key.
  local function newEpoch(number, base)
    return {epoch = number, base = base, cursor = base, head = base, ended = false, delivered = ZERO, void = ZERO,
      skipped = ZERO, late = ZERO, out = ZERO, buffered = 0, parked = false, unordered = ZERO, ahead = ZERO,
      attempts = 0, begun = base, retry = 0, gap = ZERO, above = ZERO, since = 0, opened = 0, look = 0, alerted = false,
      asked = 0, low = base, ids = ZERO, error = ''}
  end

  local function readRange(member)
    local n = #member
    return sub(member, n - 38, n - 20), sub(member, n - 19, n - 1), sub(member, n)
  end

  -- The range that a number lies in, or nil.
  local function rangeAt(e, number)
    local prefix = 'r' .. e.handle .. ':'
    local member = call('ZREVRANGEBYLEX', Z, '[' .. prefix .. number .. '~', '[' .. prefix, 'LIMIT', 0, 1)[1]
    if not member then return nil end
    local from, to, kind = readRange(member)
    if number < to then return kind, from, to end
  end

  -- The first number from this one on that lies in no range.
  local function outside(e, number)
    local kind, _, to = rangeAt(e, number)
    while kind do
      number = to
      kind, _, to = rangeAt(e, number)
    end
    return number
  end

  -- The number behind the gap at the cursor, and whether it is held: otherwise it was
  -- delivered outside of the buffer.
  local function behind(e)
    local number = e.cursor
    local kind, _, to = rangeAt(e, number)
    while kind == 'm' or kind == 'v' do
      number = to
      kind, _, to = rangeAt(e, number)
    end
    return number, not kind
  end

  -- What claims and lists say of a gap that is open.
  local function tellGap(k, e)
    return format('%s %.0f %.0f %s %.0f %s', e.above, e.opened, e.since, e.alerted and '1' or '0', e.asked, k.waiting == '' and '0' or '1')
  end

  -- Calls f with each piece of a range that lies in [from, to), ascending. f may
  -- change the piece that it is called with.
  local function pieces(e, from, to, f)
    local prefix = 'r' .. e.handle .. ':'
    local at = from
    while at < to do
      local kind, first, last = rangeAt(e, at)
      if not kind then
        local member = call('ZRANGEBYLEX', Z, '[' .. prefix .. at, '(' .. prefix .. to, 'LIMIT', 0, 1)[1]
        if not member then return end
        first, last, kind = readRange(member)
        at = first
      end
      local stop = lesser(last, to)
      f(at, stop, kind)
      at = stop
    end
  end

  local function member(e, from, to, kind) return 'r' .. e.handle .. ':' .. from .. to .. kind end

  -- Takes [from, to) out of the one range that it lies in.
  local function cut(e, from, to)
    local kind, first, last = rangeAt(e, from)
    call('ZREM', Z, member(e, first, last, kind))
    if first < from then call('ZADD', Z, 0, member(e, first, from, kind)) end
    if to < last then call('ZADD', Z, 0, member(e, to, last, kind)) end
  end

  -- Makes [from, to) a range, and joins it with those of its kind that touch it.
  local function put(e, from, to, kind)
    local prefix = 'r' .. e.handle .. ':'
    local left = call('ZREVRANGEBYLEX', Z, '(' .. prefix .. from, '[' .. prefix, 'LIMIT', 0, 1)[1]
    if left then
      local first, last, was = readRange(left)
      if last == from and was == kind then
        call('ZREM', Z, left)
        from = first
      end
    end
    local right = call('ZRANGEBYLEX', Z, '[' .. prefix .. to, '(' .. prefix .. to .. '~', 'LIMIT', 0, 1)[1]
    if right then
      local first, last, was = readRange(right)
      if first == to and was == kind then
        call('ZREM', Z, right)
        to = last
      end
    end
    call('ZADD', Z, 0, member(e, from, to, kind))
  end

  -- Calls f with each unbroken row [from, to) of numbers that lie in no range.
  local function rows(e, from, to, f)
    local at = from
    pieces(e, from, to, function(first, last)
      if at < first then f(at, first) end
      at = last
    end)
    if at < to then f(at, to) end
  end

  -- Message rows: 1, when it came (16 digits), what it is, its digest (16 bytes),
  -- its ID. It is b pushed in time; l late and waiting; k late and parked; L late
  -- and ended; x late without a digest.
  local function readMessage(row) return sub(row, 2, 17), sub(row, 18, 18), sub(row, 19, 34), sub(row, 35) end

  -- Whether the j row of an ID leads to this message.
  local function leadsTo(place, name, number)
    return place and sub(place, 1, 38) == number and sub(place, 55) == name
  end

  -- Takes a message out of h. gone collects nonces, IDs and keys whose i rows are void from
  -- then on: a push that has read one of them is turned away by its f row.
  local function forget(name, handle, at, number, gone)
    local field = handle .. ':' .. number
    local row = get('m' .. field)
    if not row then return false end
    local _, _, _, id = readMessage(row)
    if id ~= '' then
      local place = get('j' .. id)
      if leadsTo(place, name, at .. number) then
        local nonce = sub(place, 39, 54)
        del('j' .. id)
        set('f' .. nonce .. id, '')
        call('ZADD', X, format('%.0f', now), 'f' .. nonce .. id)
        gone[#gone + 1] = nonce .. id .. '\0' .. name
      end
    end
    del('m' .. field)
    del('b' .. field)
    del('w' .. field)
    return true
  end

  -- Where a number is, as a letter; find.lua lists them. row is that of its message.
  local function stateOf(e, number, row, window)
    if number < e.base or number >= e.head then return '?' end
    local kind = (number < e.cursor or hasRanges(e)) and rangeAt(e, number)
    if kind then return kind end
    if number >= e.cursor then
      if e.parked and number == e.cursor then return 'p' end
      return 'b'
    end
    if row and sub(row, 18, 18) ~= 'b' then return 'l' end
    if number >= minus(plus(e.cursor, 1), format('%019d', window)) then return 'd' end
    return '-'
  end

  local function readLate(row) return match(row, LATE) end

  local function sweepLater(k, e, number)
    call('ZADD', X, format('%.0f', now), 's' .. e.epoch .. number .. plus(number, 1) .. e.handle .. ':' .. k.name)
    call('ZADD', Z, 0, 'y' .. k.name .. '\0' .. e.epoch .. number)
  end

  -- Marks one ended message for the sweeper, or drops it where nothing of it needs
  -- to be kept. Its number lies below the cursor, or in a range.
  local function endOne(k, e, number, keep)
    local field = e.handle .. ':' .. number
    local row = get('m' .. field)
    if not row then return end
    local _, _, _, id = readMessage(row)
    if id == '' then del('b' .. field) end
    if id ~= '' or keep and e.ids > ZERO then
      sweepLater(k, e, number)
    elseif not keep or number < e.low then
      del('m' .. field)
    end
  end

  -- Keeps a record of a gap: [from, to) was skipped.
  -- A record: 1, to, when it opened, alerted, asked, reason, how many came late,
  -- resolution, when that was, the length of the actor, actor and note.
  local function writeRecord(field, r)
    set(field, format('1 %s %.0f %s %.0f %s %.0f %s %.0f %.0f ', r.to, r.opened, r.alerted and '1' or '0', r.asked,
      r.reason, r.arrived, r.resolution, r.resolved, #r.actor) .. r.actor .. r.note)
  end

  local function readRecord(row)
    local r = {}
    local opened, alerted, asked, arrived, resolved, size, text
    r.to, opened, alerted, asked, r.reason, arrived, r.resolution, resolved, size, text =
      match(row, '^1 (%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    r.opened, r.alerted, r.asked, r.arrived = tonumber(opened), alerted == '1', tonumber(asked), tonumber(arrived)
    r.resolved = tonumber(resolved)
    r.actor, r.note = sub(text, 1, tonumber(size)), sub(text, tonumber(size) + 1)
    return r
  end

  local function keepRecord(k, e, from, to, r)
    local place = k.name .. '\0' .. e.epoch .. from
    local opened, alerted, asked = now, false, 0
    if from == e.gap then
      opened, alerted, asked = e.opened, e.alerted or r.alerted, math.max(e.asked, r.asked or 0)
    end
    writeRecord('g' .. place, {to = to, opened = opened, alerted = alerted, asked = asked, reason = r.reason, arrived = 0,
      resolution = r.resolution or '0', resolved = r.resolution and now or 0, actor = r.actor or '', note = r.note or ''})
    call('ZADD', Z, 0, 'g' .. place)
    if r.resolution then
      call('ZADD', Y, format('%.0f', now), place)
    else
      call('ZADD', Z, 0, 'q' .. place)
    end
  end

  -- Counts a skipped number that came, in the record it belongs to.
  local function countArrived(k, e, number)
    local place = k.name .. '\0' .. e.epoch
    local field = call('ZREVRANGEBYLEX', Z, '[g' .. place .. number, '[g' .. place, 'LIMIT', 0, 1)[1]
    if not field then return end
    local r = readRecord(get(field))
    if number < r.to then
      r.arrived = r.arrived + 1
      writeRecord(field, r)
    end
  end

  -- Skips the missing numbers of [cursor, to), which holds no messages, and moves
  -- the cursor there.
  local function skip(k, e, to, r)
    local missing = {}
    pieces(e, e.cursor, to, function(first, last, kind)
      if kind == 'm' then missing[#missing + 1] = {first, last} end
    end)
    for _, piece in ipairs(missing) do
      local first, last = piece[1], piece[2]
      cut(e, first, last)
      put(e, first, last, 's')
      e.skipped = add(e.skipped, minus(last, first))
      keepRecord(k, e, first, last, r)
    end
    closeGap(k, e)
    move(k, e, to)
  end

  -- Skips every number of an epoch that is missing or held, and ends it.
  local function abandon(k, e)
    local ranges, held = {}, {}
    pieces(e, e.cursor, e.head, function(first, last, kind) ranges[#ranges + 1] = {first, last, kind} end)
    rows(e, e.cursor, e.head, function(first, last) held[#held + 1] = {first, last} end)
    for _, row in ipairs(held) do
      local number = row[1]
      while number < row[2] do
        endOne(k, e, number, false)
        number = plus(number, 1)
      end
    end
    local n = e.buffered
    k.buffered, k.held, e.buffered = k.buffered - n, k.held - n, 0
    if e.parked then
      e.parked, k.held = false, k.held - 1
      call('ZREM', Z, 'k' .. k.name .. '\0' .. e.epoch .. e.cursor)
    end
    -- what is neither void nor unordered is now one kind: missing
    for _, row in ipairs(held) do put(e, row[1], row[2], 'm') end
    skip(k, e, e.head, {reason = '3'})
    e.ended, e.changed = true, true
  end

  -- Makes a new epoch one of the key, which may be new as well.
  local function addEpoch(k, e, abandoning)
    e.handle = format('%.0f', tally('t:handle', 1))
    k.epochs[e.epoch] = e
    k.list[#k.list + 1] = e
    call('ZADD', Z, 0, 'e' .. k.name .. '\0' .. e.epoch)
    if k.new then
      k.new, k.active, k.highest = false, e.epoch, e.epoch
      tally('t:keys', 1)
      return
    end
    if e.epoch < k.highest then -- it has its place among those that wait
      local before, i = '', 1
      while i < #k.waiting and sub(k.waiting, i, i + 18) < e.epoch do i = i + 19 end
      k.waiting = sub(k.waiting, 1, i - 1) .. e.epoch .. sub(k.waiting, i)
      return
    end
    local lower = k.active .. k.waiting
    k.waiting, k.highest = k.waiting .. e.epoch, e.epoch
    if abandoning then
      for i = 1, #lower, 19 do abandon(k, epoch(k, sub(lower, i, i + 18))) end
      k.active, k.waiting, k.first = e.epoch, '', LAST
    end
  end

  made = {
    newEpoch = newEpoch,
    readRange = readRange,
    rangeAt = rangeAt,
    outside = outside,
    behind = behind,
    tellGap = tellGap,
    pieces = pieces,
    member = member,
    cut = cut,
    put = put,
    rows = rows,
    readMessage = readMessage,
    leadsTo = leadsTo,
    forget = forget,
    stateOf = stateOf,
    readLate = readLate,
    sweepLater = sweepLater,
    endOne = endOne,
    writeRecord = writeRecord,
    readRecord = readRecord,
    keepRecord = keepRecord,
    countArrived = countArrived,
    skip = skip,
    abandon = abandon,
    addEpoch = addEpoch,
  }
  return made
end
