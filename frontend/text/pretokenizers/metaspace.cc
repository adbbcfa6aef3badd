// Metaspace: blanks become a visible mark, which also begins the text, and words are cut before it.

#include <utility>

#include "frontend/text/json_fields.h"
#include "frontend/text/pretokenizers/pretokenizer_step.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

enum class Prepend { kAlways, kFirst, kNever };

class MetaspaceStep : public PretokenizerStep {
 public:
  MetaspaceStep(std::string mark, Prepend prepend, bool split)
      : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

  Status Apply(Pieces* pieces) const override {
    const std::vector<std::string_view> before = std::exchange(pieces->pieces, {});
    for (size_t i = 0; i < before.size(); ++i) {
      std::string text = ReplaceAll(before[i], " ", mark_);
      const bool prepend = prepend_ == Prepend::kAlways ||
                           (prepend_ == Prepend::kFirst && pieces->at_start && i == 0);
      if (prepend && !text.starts_with(mark_)) text.insert(0, mark_);
      const std::string_view piece = pieces->owned.emplace_back(std::move(text));
      size_t begin = 0;
      for (size_t at = split_ ? piece.find(mark_, 1) : std::string_view::npos;
           at != std::string_view::npos; at = piece.find(mark_, at + 1)) {
        pieces->pieces.push_back(piece.substr(begin, at - begin));
        begin = at;
      }
      pieces->pieces.push_back(piece.substr(begin));
    }
    return OkStatus();
  }

 private:
  const std::string mark_;
  const Prepend prepend_;
  const bool split_;
};

}  // namespace

NewPretokenizerStep NewMetaspacePretokenizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string mark, StringField(spec, "replacement", "\u2581"));
  ASSIGN_OR_RETURN(std::string scheme, StringField(spec, "prepend_scheme", "always"));
  ASSIGN_OR_RETURN(const bool add_prefix_space, BoolField(spec, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool split, BoolField(spec, "split", true));
  if (!add_prefix_space) scheme = "never";  // the older spelling
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return UnimplementedError("Metaspace prepend_scheme \"" + scheme + "\" is not supported");
  }
  if (mark.empty()) return InvalidArgumentError("Metaspace without a replacement");
  const Prepend prepend = scheme == "always"  ? Prepend::kAlways
                          : scheme == "first" ? Prepend::kFirst
                                              : Prepend::kNever;
  return std::unique_ptr<PretokenizerStep>(
      std::make_unique<MetaspaceStep>(std::move(mark), prepend, split));
}

}  // namespace tandem
