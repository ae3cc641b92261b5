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
    -- The numbers of a state that is not as good as new.
    local one, two, three
    local value = call('GET', KEYS[i])
    if value and value ~= '0' then
        failure = value.err
        if failure then
            reply = ''
        else
            one, two, three = match(value, pattern)
            if not one then
                -- Rare values: more than a state.
                local state, text, end_u, end_n = match(value, '^([%d:]+)(!(%d+)(%d%d%d)h?)$')
                if state and #end_u <= 16 and end_u - now <= 576460752303423 then
                    block, blocked = text, end_u - now
                    if blocked >= 0 and end_n ~= '000' then blocked = blocked + 1 end
                    if blocked < 0 then blocked = 0 end
                    one, two, three = match(state, pattern)
                end
                if not one and state ~= '0' or block == '' then reply = '' end
            end
            if one and (#one > 16 or #two > 16 or three and (#two > 15 or #three > 15)) then reply = '' end
        end
    end
