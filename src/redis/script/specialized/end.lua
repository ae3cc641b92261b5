    -- Writes only a value that has changed: a denial changes nothing. It expires when all of it is as good as new, in
    -- whole milliseconds, at least 1.
    if text then
        if micros < blocked then micros = blocked end
        local over = micros % 1000
        local milliseconds = (micros - over) / 1000
        if over > 0 or milliseconds == 0 then milliseconds = milliseconds + 1 end
        -- The clock of a test may stand still while the server's runs.
        if ARGV[1] ~= '' then milliseconds = milliseconds + 3600000 end
        failure = call('SET', KEYS[i], text .. block, 'PX', format('%d', milliseconds)).err
    end
    if more then reply = reply .. table.concat(more) end
    if not replies then return failure and redis.error_reply(failure) or reply end
    replies[i] = failure and '-' .. failure or reply
end
return replies
