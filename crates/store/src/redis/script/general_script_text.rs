// An expression, for `include!`: the script's text. A script creates its functions anew in every
// call, so this one creates those of the algorithms in use only.
concat!(
    include_str!("constants.lua"),
    include_str!("time.lua"),
    include_str!("tat_instant.lua"),
    "local function make(letter)\nif letter == 't' then\n",
    include_str!("token_bucket.lua"),
    "return TokenBucket\nelseif letter == 'l' then\n",
    include_str!("leaky_bucket.lua"),
    "return LeakyBucket\nelseif letter == 'f' or letter == 'c' then\n",
    include_str!("fixed_window.lua"),
    "return FixedWindow\nelseif letter == 's' then\n",
    include_str!("sliding_window.lua"),
    "return SlidingWindow\nelseif letter == 'h' then\n",
    include_str!("node_rows.lua"),
    "return NodeRows\nend\n",
    include_str!("sliding_log.lua"),
    "return SlidingLog\nend\n",
    include_str!("decide.lua"),
)
