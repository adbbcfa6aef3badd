// The field tables: the parser does what each row states.

#include <nlohmann/json.hpp>
#include <set>

#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Status ParseWith(bool chat, const std::string& name, const Json& value) {
  Json body = {{"prompt", "x"}, {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  body[name] = value;
  return chat ? ParseChatRequest(body).status() : ParseCompletionRequest(body).status();
}

template <class T>
constexpr bool kIsChat = std::is_same_v<T, ChatRequest>;

// A value of a type that the row's member does not accept; null when it accepts any.
template <class T>
Json WrongType(const ApiField<T>& field) {
  return std::visit(
      [](auto member) -> Json {
        using M = decltype(member);
        if constexpr (std::is_member_object_pointer_v<M>) {
          using V = std::remove_reference_t<decltype(std::declval<T>().*member)>;
          constexpr bool kText =
              std::is_same_v<V, std::string> || std::is_same_v<V, std::optional<std::string>>;
          return kText ? Json(5) : Json("a text");
        }
        return nullptr;
      },
      field.member);
}

template <class T>
void CheckRow(const ApiField<T>& field) {
  const std::string name(field.name);
  CAPTURE(name);
  CHECK_FALSE(field.help.empty());
  const Json wrong = WrongType(field);
  if (!wrong.is_null()) {
    const Status status = ParseWith(kIsChat<T>, name, wrong);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.param() == "body." + name);
    CHECK(status.message().rfind("1 validation error:", 0) == 0);
  }
  if (std::holds_alternative<Unsupported>(field.member)) {
    const Status status = ParseWith(kIsChat<T>, name, Json::array({1, 2, 3}));
    CHECK(status.param() == name);
    CHECK(status.message().find("not supported") != std::string::npos);
    CHECK(ParseWith(kIsChat<T>, name, nullptr).ok());
  }
  const bool is_number = std::visit(
      [](auto member) {
        using M = decltype(member);
        return std::is_same_v<M, int64_t T::*> || std::is_same_v<M, std::optional<int64_t> T::*> ||
               std::is_same_v<M, std::optional<double> T::*>;
      },
      field.member);
  if (!is_number) return;
  for (const double outside : {field.range.min - 1, field.range.max + 1}) {
    if (std::abs(outside) > 9e18) continue;  // no limit on this side
    const Status status = ParseWith(kIsChat<T>, name, outside);
    CHECK(status.param() == name);
    CHECK(status.message().rfind(name + " must be " + field.range.Describe() + ", got ", 0) == 0);
  }
  if (field.range.min_open) CHECK(ParseWith(kIsChat<T>, name, field.range.min).param() == name);
}

TEST_CASE("Field tables: wrong types, values out of range and unsupported fields are refused") {
  for (const auto& field : kGenerationFields) CheckRow(field);
  for (const auto& field : kCompletionFields) CheckRow(field);
  for (const auto& field : kChatFields) CheckRow(field);
}

TEST_CASE("Field tables: a name has one row per endpoint") {
  std::set<std::string_view> completion;
  std::set<std::string_view> chat;
  for (const auto& field : kGenerationFields) {
    CHECK(completion.insert(field.name).second);
    CHECK(chat.insert(field.name).second);
  }
  for (const auto& field : kCompletionFields) CHECK(completion.insert(field.name).second);
  for (const auto& field : kChatFields) CHECK(chat.insert(field.name).second);
}

TEST_CASE("Range describes what it allows") {
  CHECK(Range{0, 2}.Describe() == "in [0, 2]");
  CHECK(Range{0, 1, true}.Describe() == "in (0, 1]");
  CHECK(Range{1}.Describe() == "at least 1");
  CHECK(Range{0, std::numeric_limits<double>::infinity(), true}.Describe() == "greater than 0");
  CHECK_FALSE(Range{0, 1}.Contains(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("At most ten errors are listed") {
  Json body = {{"prompt", "x"}};
  int num_bad = 0;
  for (const auto& field : kGenerationFields) {
    const Json wrong = WrongType(field);
    if (wrong.is_null()) continue;
    body[std::string(field.name)] = wrong;
    ++num_bad;
  }
  const Status status = ParseCompletionRequest(body).status();
  CHECK(status.message().rfind(std::to_string(num_bad) + " validation errors:", 0) == 0);
  CHECK(std::count(status.message().begin(), status.message().end(), '\n') == 10);
}

}  // namespace
}  // namespace tandem
