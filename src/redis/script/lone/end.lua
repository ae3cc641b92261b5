    -- A value that has not changed, as after a denial, is not written. It lives until there is nothing left to
    -- remember, in whole milliseconds, at least 1.
    if text then
        if micros < blocked then micros = blocked end
        local over = micros % 1000
        local milliseconds = (micros - over) / 1000
        if over > 0 or milliseconds == 0 then milliseconds = milliseconds + 1 end
        -- The time of a test may stand still while the server's goes on.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        failure = call('SET', KEYS[i], text .. block, 'PX', format('%d', milliseconds)).err
    end
    if more then reply = reply .. table.concat(more) end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
