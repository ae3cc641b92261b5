"""Calls a server of language models by the official clients of two providers, and prints the usage that each call reports."""

import json
import sys

import anthropic
import openai

BASE = sys.argv[1]
MESSAGES = [{"role": "user", "content": "Hello!"}]


def report(name, *tokens):
    print(json.dumps({"call": name, "tokens": sum(tokens)}))


def openai_client(path):
    return openai.OpenAI(base_url=f"{BASE}{path}/v1", api_key="a", max_retries=0)


client = openai_client("")
chat = {"model": "gpt-4.1-mini", "messages": MESSAGES}
whole = client.chat.completions.create(**chat, max_completion_tokens=40)
report("chat", whole.usage.prompt_tokens, whole.usage.completion_tokens)
text = ""
for chunk in client.chat.completions.create(
    **chat, max_completion_tokens=300, stream=True, stream_options={"include_usage": True}
):
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
    usage = chunk.usage or None
assert text.startswith("word0 word1 ") and text.endswith("word299 "), text
report("chat stream", usage.prompt_tokens, usage.completion_tokens)

whole = client.responses.create(model="gpt-4.1", input="Hello!", max_output_tokens=50)
assert whole.output_text == "Hello.", whole
report("responses", whole.usage.input_tokens, whole.usage.output_tokens)
stream = client.responses.create(model="gpt-4.1", input="Hello!", max_output_tokens=60, stream=True)
*_, last = stream
report("responses stream", last.response.usage.input_tokens, last.response.usage.output_tokens)

embedding = client.embeddings.create(model="text-embedding-3-small", input="Hello!", encoding_format="float")
assert len(embedding.data[0].embedding) == 8
report("embeddings", embedding.usage.prompt_tokens)

claude = anthropic.Anthropic(base_url=BASE, api_key="b", max_retries=0)
chat = {"model": "claude-sonnet-4-5", "messages": MESSAGES}
whole = claude.messages.create(**chat, max_tokens=70)
cached = whole.usage.cache_creation_input_tokens + whole.usage.cache_read_input_tokens
report("messages", whole.usage.input_tokens, cached, whole.usage.output_tokens)
with claude.messages.stream(**chat, max_tokens=80) as stream:
    assert "".join(stream.text_stream).endswith("word79 ")
    usage = stream.get_final_message().usage
report("messages stream", usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens)

# Both clients read a denial as one of their provider.
small = openai_client("/small")
small.chat.completions.create(model="gpt-4.1-mini", messages=MESSAGES)
try:
    small.chat.completions.create(model="gpt-4.1-mini", messages=MESSAGES)
except openai.RateLimitError as error:
    assert error.status_code == 429 and int(error.response.headers["retry-after"]) > 0
else:
    sys.exit("the client of OpenAI was not denied")
small = anthropic.Anthropic(base_url=f"{BASE}/small", api_key="b", max_retries=0)
small.messages.create(**chat, max_tokens=1)
try:
    small.messages.create(**chat, max_tokens=1)
except anthropic.RateLimitError as error:
    assert error.status_code == 429
else:
    sys.exit("the client of Anthropic was not denied")
