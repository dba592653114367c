-- wrk's script: every request asks for the same completion, and every answer must hold the text in $EXPECTED.
wrk.method = "POST"
wrk.path = "/v1/completions"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'

local threads = {}
function setup(thread)
    threads[#threads + 1] = thread
end

good, bad, sample = 0, 0, ""
local expected = os.getenv("EXPECTED")
function response(status, headers, body)
    if status == 200 and string.find(body, expected, 1, true) then
        good = good + 1
    else
        bad, sample = bad + 1, status .. " " .. body
    end
end

function done(summary, latency, requests)
    local all_good, all_bad, text = 0, 0, ""
    for _, thread in ipairs(threads) do
        all_good = all_good + thread:get("good")
        all_bad = all_bad + thread:get("bad")
        if thread:get("bad") > 0 then text = thread:get("sample") end
    end
    local e = summary.errors
    print(string.format("RESULT good=%d bad=%d connect=%d read=%d write=%d timeout=%d %s", all_good, all_bad, e.connect,
        e.read, e.write, e.timeout, text))
end
