"""Short chat templates that behave like those of the large families."""

from __future__ import annotations

# Adds a system text of its own when there is none; no BOS.
QWEN_LIKE = """
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

# Drops the thinking of earlier answers, as Qwen3 does.
THINKING_LIKE = """
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content and not loop.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# Writes BOS itself, into the first turn.
LLAMA_LIKE = """
{%- for message in messages %}
    {%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'
        + message['content'] | trim + '<|eot_id|>' %}
    {%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
    {{- content }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# BOS, no system turn, strict alternation.
GEMMA_LIKE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {{- raise_exception('System role not supported') }}
{%- endif %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant') }}
    {%- endif %}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
    {{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

# BOS, system text put into the last question, alternation, EOS after answers.
MISTRAL_LIKE = """
{%- if messages[0].role == 'system' %}
    {%- set system_text = messages[0].content %}{%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in turns %}
    {%- if (message.role == 'user') != (ns.index % 2 == 0) %}
        {{- raise_exception('After the optional system message, roles must alternate') }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {%- if loop.last and system_text is defined %}
            {{- '[INST] ' + system_text + '\\n\\n' + message.content + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message.content + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message.content + eos_token }}
    {%- endif %}
{%- endfor %}
"""

# Leaves a system text out without a word.
DEAF_TO_SYSTEM = """
{%- for m in messages if m.role != 'system' %}
    {{- '<' ~ m.role ~ '>' ~ m.content ~ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""

# Wants a system text only at the start.
SYSTEM_FIRST = """
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}
        {{- raise_exception('System message must be at the beginning.') }}
    {%- endif %}
    {{- '<' ~ m.role ~ '>' ~ m.content ~ '\\n' }}
{%- endfor %}"""

# Training marks and today's date.
TRAINING_LIKE = """
{{- 'Today: ' + strftime_now('%d %B %Y') + '\\n' }}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}
    {%- else %}{{ '[' + m.content + ']' }}{% endif %}
{%- endfor %}"""
