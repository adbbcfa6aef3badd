#pragma once

// A model's chat template: Jinja source compiled once, rendered per request, with the results of
// transformers' sandbox (trim_blocks, lstrip_blocks, loop controls, generation tag).
// Thread: immutable after Compile; Render may run on any number of threads (text pool).
// Ownership: values only. A template is hostile input: every render has limits on steps, depth,
// output and values, and reaching one is a ResourceExhausted.
// Compile: InvalidArgument "chat template line N: ..." for a syntax error. Render: InvalidArgument
// with the text of raise_exception(), or with the template's own mistake.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

namespace jinja {
struct Template;
}

struct ChatTemplateLimits {
  int64_t max_steps = 20'000'000;        // expressions and statements evaluated
  int64_t max_output_bytes = 64 << 20;   // also the longest string a template may build
  int64_t max_value_bytes = 256 << 20;   // all that one render builds, freed or not
  int max_depth = 100;                   // nested calls and blocks
  int64_t max_template_bytes = 1 << 20;  // of the source
};

// Pointers are borrowed for the call; null stands for "not given".
struct ChatTemplateInput {
  const nlohmann::ordered_json* messages = nullptr;   // required: array of objects
  const nlohmann::ordered_json* tools = nullptr;      // array, template sees none when null
  const nlohmann::ordered_json* documents = nullptr;  // array, template sees none when null
  const nlohmann::ordered_json* kwargs = nullptr;     // object: chat_template_kwargs
  bool add_generation_prompt = false;
  bool continue_final_message = false;  // the output ends with the last message's content
  const std::map<std::string, std::string>* special_tokens = nullptr;  // bos_token, eos_token, ...
  int64_t now_s = 0;  // seconds since 1970 for strftime_now, shown in local time
};

// What the template expects in a message's `content`: one string, or a list of parts.
enum class ContentFormat { kString, kParts };

class ChatTemplate {
 public:
  static StatusOr<ChatTemplate> Compile(std::string_view source, ChatTemplateLimits limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  StatusOr<std::string> Render(const ChatTemplateInput& input) const;
  // With the variables of one JSON object only; none of the chat conventions.
  StatusOr<std::string> RenderVariables(const nlohmann::ordered_json& variables,
                                        int64_t now_s) const;

  // kParts when the template loops over a message's content.
  ContentFormat content_format() const { return content_format_; }
  // Whether it names the role developer.
  bool knows_developers() const { return knows_developers_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate();
  StatusOr<std::string> RenderDict(
      const std::vector<std::pair<std::string, const nlohmann::ordered_json*>>& variables,
      int64_t now_s) const;

  std::unique_ptr<const jinja::Template> template_;
  ChatTemplateLimits limits_;
  std::string source_;
  ContentFormat content_format_ = ContentFormat::kString;
  bool knows_developers_ = false;
};

}  // namespace tandem
