#include "frontend/chat/chat_template.h"

#include <limits>

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;

ordered_json Messages() { return ordered_json::parse(R"([{"role": "user", "content": "Hi"}])"); }

StatusOr<std::string> Render(std::string_view source, const ordered_json& variables) {
  auto compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status();
  return compiled->RenderVariables(variables, 0);
}

TEST_CASE("ChatTemplate names the line of a syntax error") {
  const auto compiled = ChatTemplate::Compile("a\nb\n{% if x %}\n{% endfor %}");
  REQUIRE_FALSE(compiled.ok());
  CHECK(compiled.status().message() == "chat template line 4: Encountered unknown tag 'endfor'.");
  CHECK(ChatTemplate::Compile("{{ 1").status().code() == StatusCode::kInvalidArgument);
  CHECK(ChatTemplate::Compile("\xFF").status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("ChatTemplate names the line of a failure while rendering") {
  CHECK(Render("x\n{{ a.b }}", ordered_json::object()).status().message() ==
        "chat template line 2: 'a' is undefined");
}

TEST_CASE("ChatTemplate passes the text of raise_exception on as it is") {
  const auto result = Render("{{ raise_exception('only ' ~ 2) }}", ordered_json::object());
  CHECK(result.status() == InvalidArgumentError("only 2"));
}

TEST_CASE("ChatTemplate gives tools and documents as none and lets kwargs win") {
  auto compiled = ChatTemplate::Compile(
      "{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token }} {{ x }}");
  ChatTemplateInput input;
  const ordered_json messages = Messages();
  const ordered_json kwargs = {{"x", 1}, {"bos_token", "K"}};
  const std::map<std::string, std::string> special_tokens = {{"bos_token", "B"}};
  input.messages = &messages;
  input.special_tokens = &special_tokens;
  CHECK(compiled->Render(input).value() == "None None False B ");
  input.kwargs = &kwargs;
  input.add_generation_prompt = true;
  CHECK(compiled->Render(input).value() == "None None True K 1");
}

TEST_CASE("ChatTemplate shows numbers that JSON has no kind for as Python does") {
  const auto digits = [](const std::string& text) {
    return ordered_json::binary({text.begin(), text.end()});
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const ordered_json numbers = {digits("100000000000000000000"),
                                digits("-18446744073709551617"),
                                std::numeric_limits<double>::quiet_NaN(),
                                infinity,
                                -infinity,
                                1e5,
                                1.0,
                                1e16,
                                -0.0,
                                UINT64_MAX};
  CHECK(
      Render("{{ n | tojson }}\n{{ n }}\n{{ n[0] + 1 }} {{ n[0] is integer }}", {{"n", numbers}})
          .value() ==
      "[100000000000000000000, -18446744073709551617, NaN, Infinity, -Infinity, 100000.0, 1.0, "
      "1e+16, -0.0, 18446744073709551615]\n"
      "[100000000000000000000, -18446744073709551617, nan, inf, -inf, 100000.0, 1.0, 1e+16, -0.0, "
      "18446744073709551615]\n100000000000000000001 True");
  // Beyond 127 bits.
  CHECK(Render("{{ n }}", {{"n", digits("1" + std::string(50, '0'))}}).value() == "1e+50");
}

TEST_CASE("ChatTemplate shows a message's reasoning under all its names") {
  auto compiled = ChatTemplate::Compile(
      "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{% endfor %}");
  ChatTemplateInput input;
  const auto messages = ordered_json::parse(R"([{"role": "assistant", "reasoning": "r"}])");
  input.messages = &messages;
  CHECK(compiled->Render(input).value() == "rr");
}

TEST_CASE("ChatTemplate ends with the final message when it is to be continued") {
  auto compiled = ChatTemplate::Compile("{% for m in messages %}<{{ m.content }}>{% endfor %}!");
  ChatTemplateInput input;
  ordered_json messages = Messages();
  input.messages = &messages;
  input.continue_final_message = true;
  CHECK(compiled->Render(input).value() == "<Hi");
  input.add_generation_prompt = true;
  CHECK_FALSE(compiled->Render(input).ok());
  input.add_generation_prompt = false;
  messages[0]["content"] = nullptr;
  CHECK_FALSE(compiled->Render(input).ok());
  messages = ordered_json::array();
  CHECK_FALSE(compiled->Render(input).ok());
}

TEST_CASE("ChatTemplate refuses messages that are not an array") {
  auto compiled = ChatTemplate::Compile("x");
  ChatTemplateInput input;
  CHECK_FALSE(compiled->Render(input).ok());
  const ordered_json messages = "text";
  input.messages = &messages;
  CHECK_FALSE(compiled->Render(input).ok());
}

TEST_CASE("ChatTemplate detects a loop over parts of the content") {
  const auto format = [](std::string_view source) {
    return ChatTemplate::Compile(source).value().content_format();
  };
  CHECK(format("{% for m in messages %}{{ m.content }}{% endfor %}") == ContentFormat::kString);
  CHECK(format("{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}") ==
        ContentFormat::kParts);
  CHECK(format("{% for m in messages %}{% for p in m['content'] | list %}{% endfor %}"
               "{% endfor %}") == ContentFormat::kParts);
  CHECK(format("{% set c = messages[0].content %}{% for p in c %}{% endfor %}") ==
        ContentFormat::kParts);
  CHECK(format("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}"
               "{{ show(messages[0].content) }}") == ContentFormat::kParts);
  CHECK(format("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
               "{{ show(messages[0].content) }}") == ContentFormat::kString);
}

TEST_CASE("ChatTemplate bounds what a hostile template can use up") {
  const std::vector<std::string> sources = {
      // steps
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{{ range(99999) == range(99999) }}{% endfor %}",
      "{% for a in range(99999) %}{{ 5 in range(99999) | list }}{% endfor %}",
      // memory
      "{{ 'x' * 10 ** 12 }}",
      "{{ [0] * 10 ** 12 }}",
      "{% set n = namespace(x='ab') %}{% for a in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor "
      "%}",
      "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
      "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
      "{{ n.x }}",
      "{{ 'aaaaaaaaaa' | replace('', 'b' * 1000000) | replace('b', 'c' * 1000000) }}",
      "{{ (range(90000) | list | string) * 10000 }}",
      "{{ '%99999999d' | format(1) }}",
      "{{ 'x' | indent(99999999) }}",
      "{{ 'x'.ljust(99999999) }}",
      "{{ range(1000000) }}",
      "{{ 2 ** 1000 }}",
      // depth
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
      "{% set n = namespace(x=[1]) %}{% for a in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"
      "{{ n.x == n.x }}{{ n.x }}",
      "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
  };
  for (const std::string& source : sources) {
    CAPTURE(source);
    const auto result = Render(source, ordered_json::object());
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code() == StatusCode::kResourceExhausted);
  }
}

TEST_CASE("ChatTemplate refuses source that is nested too deeply") {
  const auto nested = [](const char* open, const char* close) {
    std::string source;
    for (int i = 0; i < 20'000; ++i) source += open;
    source += "x";
    for (int i = 0; i < 20'000; ++i) source += close;
    return source;
  };
  for (const std::string& source :
       {"{{ " + nested("(", ")") + " }}", "{{ " + nested("[", "]") + " }}",
        "{{ " + nested("not ", "") + " }}", "{{ " + nested("-", "") + " }}",
        "{{ x" + nested("", ".a") + " }}", "{{ x" + nested("", "|d") + " }}",
        "{{ x" + nested("", "()") + " }}", "{{ 1" + nested("", " + 1") + " }}",
        "{{ 1" + nested("", " or 1") + " }}", "{{ 1" + nested("", " if 1 else 1") + " }}",
        nested("{% if 1 %}", "{% endif %}"), nested("{% for a in b %}", "{% endfor %}"),
        "{% for " + nested("(", ")") + " in b %}{% endfor %}",
        "{% set x" + nested("", " | d") + " %}{% endset %}"}) {
    CAPTURE(source.substr(0, 40));
    const auto compiled = ChatTemplate::Compile(source);
    CHECK_FALSE(compiled.ok());
  }
}

TEST_CASE("ChatTemplate does not let a namespace that holds itself run away") {
  CHECK(Render("{% set n = namespace() %}{% set n.n = n %}{{ n.n.n.n is defined }}{{ n == n.n }}",
               ordered_json::object())
            .value() == "TrueTrue");
}

}  // namespace
}  // namespace tandem
