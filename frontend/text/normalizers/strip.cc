// Strip: takes white space off the ends of the text.

#include "common/utf8.h"
#include "frontend/text/characters.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

class StripNormalizer : public NormalizerStep {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(std::string* text) const override {
    size_t begin = 0;
    size_t end = 0;  // after the last character that is no space
    bool inside = false;
    for (size_t pos = 0; pos < text->size();) {
      const bool space = IsWhiteSpace(NextUtf8(*text, &pos));
      if (space && !inside && left_) begin = pos;
      if (!space) inside = true;
      if (!space || !right_) end = pos;
    }
    *text = begin < end ? text->substr(begin, end - begin) : std::string();
    return OkStatus();
  }

 private:
  const bool left_;
  const bool right_;
};

}  // namespace

NewNormalizerStep NewStripNormalizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const bool left, BoolField(spec, "strip_left", true));
  ASSIGN_OR_RETURN(const bool right, BoolField(spec, "strip_right", true));
  return std::unique_ptr<NormalizerStep>(std::make_unique<StripNormalizer>(left, right));
}

}  // namespace tandem
