#include "deploy/cli/bench/completion_reader.h"

#include <array>
#include <nlohmann/json.hpp>

#include "common/shorten.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kHttpOk = 200;
constexpr size_t kMaxErrorBytes = 2000;  // of a body that goes into an error

// The contents of a chunk, read without building a JSON value: a client that shares the server's
// processors must not spend more on a token than the server.
struct Chunk {
  bool is_object = false;
  int num_choices = 0;
  std::string* text = nullptr;  // the first choice's text is appended here
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::string error;
};

class ChunkReader final : public Json::json_sax_t {
 public:
  explicit ChunkReader(Chunk* chunk) : chunk_(chunk) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool string(string_t& value) override {
    if (InFirstChoice() &&
        (Is({"choices", "", "text"}) || Is({"choices", "", "delta", "content"}) ||
         Is({"choices", "", "message", "content"}))) {
      *chunk_->text += value;
    } else if (Is({"error"}) || Is({"error", "message"})) {
      chunk_->error = value;
    }
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 0) chunk_->is_object = true;
    // Vectors and classes are in data, scores in results.
    if (Is({"choices", ""}) || Is({"data", ""}) || Is({"results", ""})) ++chunk_->num_choices;
    if (Is({"error"})) chunk_->error = "the server reports an error";
    return Enter();
  }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override {
    Enter();
    if (depth_ <= kMaxDepth) path_[depth_ - 1].clear();
    return true;
  }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (depth_ <= kMaxDepth) path_[depth_ - 1] = name;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  static constexpr size_t kMaxDepth = 4;

  bool Enter() {
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }
  bool InFirstChoice() const { return chunk_->num_choices == 1; }

  // Whether the current value lies under these keys; "" stands for an element of an array.
  bool Is(std::initializer_list<std::string_view> keys) const {
    if (depth_ != keys.size()) return false;
    size_t i = 0;
    for (const std::string_view key : keys) {
      if (path_[i++] != key) return false;
    }
    return true;
  }

  bool Number(int64_t value) {
    if (Is({"usage", "completion_tokens"})) chunk_->completion_tokens = value;
    if (Is({"usage", "prompt_tokens"})) chunk_->prompt_tokens = value;
    return true;
  }

  Chunk* chunk_;
  size_t depth_ = 0;
  std::array<std::string, kMaxDepth> path_;  // key at each depth; empty inside an array
};

}  // namespace

CompletionReader::CompletionReader(RequestOutcome* outcome) : outcome_(outcome) {}

Status CompletionReader::Take(int status_code, bool is_event_stream, std::string_view piece,
                              double now) {
  is_event_stream_ = is_event_stream && status_code == kHttpOk;
  if (!is_event_stream_) {
    body_ += piece;
    return OkStatus();
  }
  if (done_) return OkStatus();
  Status status;
  const auto take_event = [&](std::string_view data) {
    status = TakeChunk(data, now);
    return status.ok();
  };
  if (!events_.Feed(piece, take_event)) done_ = true;
  return status;
}

Status CompletionReader::TakeChunk(std::string_view json, double now) {
  Chunk chunk;
  chunk.text = &outcome_->text;
  ChunkReader reader(&chunk);
  if (!Json::sax_parse(json.begin(), json.end(), &reader) || !chunk.is_object) {
    return DataLossError("malformed chunk: " + Shorten(json, kMaxErrorBytes));
  }
  if (!chunk.error.empty()) return UnavailableError("error event: " + chunk.error);
  if (chunk.completion_tokens > 0) outcome_->output_tokens = chunk.completion_tokens;
  if (chunk.prompt_tokens > 0) outcome_->prompt_tokens = chunk.prompt_tokens;
  if (chunk.num_choices == 0) return OkStatus();
  outcome_->num_results = chunk.num_choices;
  if (!has_chunk_) {
    has_chunk_ = true;
    outcome_->ttft = now - outcome_->start;
  } else {
    outcome_->itl.push_back(now - last_chunk_at_);
  }
  last_chunk_at_ = now;
  outcome_->latency = now - outcome_->start;
  return OkStatus();
}

Status CompletionReader::Finish(int status_code, const std::string& reason, double now) {
  if (status_code != kHttpOk) {
    return UnavailableError("HTTP " + std::to_string(status_code) + " " + reason + ": " +
                            Shorten(body_, kMaxErrorBytes));
  }
  if (!is_event_stream_ && !body_.empty()) RETURN_IF_ERROR(TakeChunk(body_, now));
  body_.clear();
  if (!has_chunk_) return DataLossError("the response has no chunk with choices");
  outcome_->success = true;
  return OkStatus();
}

}  // namespace tandem
