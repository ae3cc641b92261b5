-- Whether the window comes before the bucket, in the value and in the reply.
local window_first = ARGV[2] == 'w'
local interval, full = ARGV[3] + 0, ARGV[4] + 0
local pattern = window_first and window_bucket or bucket_window

local first, last
for i = 1, #KEYS do
    if ARGV[at] ~= '=' then
        first, last = at + 1, at + ARGV[at]
        at = last
    end
    at = at + 1

    -- The reply up to the first outcome, the other outcomes if there are any, and the error of a command.
    local reply, more, failure
    -- How long the subject stays blocked, by hand for example, and the text of the block's end.
    local blocked, block = 0, ''
    -- The numbers of the bucket and of the window, without those of a state that is as good as new.
    local tat_u, tat_n, one, two, three
    local value = call('GET', KEYS[i])
    if value then
        failure = value.err
        if failure then
            reply = ''
        else
            local a, b, c, d, e = match(value, pattern)
            if not a then
                -- Rare values: more than states, or states that are as good as new.
                local head, text, end_u, end_n = match(value, '^([%d:;]+)(!(%d+)(%d%d%d)h?)$')
                if head then
                    if #end_u <= 16 and end_u - now <= 576460752303423 then
                        block, blocked = text, end_u - now
                        if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                        if blocked < 0 then blocked = 0 end
                    else
                        reply = ''
                    end
                end
                local bucket, window = match(head or value, '^([%d:]+);([%d:]+)$')
                if window_first then bucket, window = window, bucket end
                if bucket ~= '0' then tat_u, tat_n = match(bucket or '', '^(%d+)(%d%d%d)$') end
                if window ~= '0' then one, two, three = match(window or '', shape) end
                if not tat_u and bucket ~= '0' or not one and window ~= '0' then reply = '' end
            elseif window_first then
                one, two, three, tat_u, tat_n = a, b, c, d, e
            else
                tat_u, tat_n, one, two, three = a, b, c, d, e
            end
            if tat_u and #tat_u > 16 or one and (#one > 16 or #two > 15 or #three > 15) then reply = '' end
        end
    end

    -- The time until the bucket is full.
    local level, is_charged, is_clamped = 0, false, false
    if tat_u and not reply then
        level = (tat_u - now) * 1000 + tat_n
        if level < 0 then
            level = 0
        elseif level > full and level > ARGV[5] + 0 then
            -- A TAT beyond the most: the clock stepped back, or the quota was larger.
            level, is_clamped = ARGV[5] + 0, true
        end
    end
