#include "frontend/media/image_loader.h"

#include <chrono>
#include <future>
#include <string>

#include "frontend/text/base64.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::shared_ptr<const PreparedImage> ImageOf(size_t num_bytes) {
  PreparedImage image;
  image.pixels = std::string(num_bytes, 'x');
  return std::make_shared<const PreparedImage>(std::move(image));
}

TEST_CASE("the image that was not used for the longest time leaves a cache that is full") {
  ImageCache cache(10);
  cache.Add("a", ImageOf(4));
  cache.Add("b", ImageOf(4));
  CHECK(cache.Find("a") != nullptr);
  cache.Add("c", ImageOf(4));
  CHECK(cache.Find("b") == nullptr);
  CHECK(cache.Find("a") != nullptr);
  CHECK(cache.num_bytes() == 8);
  cache.Add("large", ImageOf(11));
  CHECK(cache.Find("large") == nullptr);
  CHECK(cache.Find("c") != nullptr);
  cache.Add("c", ImageOf(1));
  CHECK(cache.num_bytes() == 8);
  cache.Clear();
  CHECK(cache.num_bytes() == 0);
  CHECK(cache.Find("a") == nullptr);
  CHECK_FALSE(ImageCache(0).keeps());
}

// A loader whose preparation is the test's: pixels are the bytes, "bad" is none, "slow" is never
// done.
class Bench {
 public:
  explicit Bench(int64_t cache_bytes = 1 << 20, int64_t max_bytes = 1 << 20,
                 int64_t max_held_bytes = 1 << 20)
      : loader_({.reader = reader_.get(),
                 .text_pool = &text_pool_,
                 .media_pool = &media_pool_,
                 .cache_owner = &shard_,
                 .cache_bytes = cache_bytes,
                 .max_bytes = max_bytes,
                 .max_held_bytes = max_held_bytes,
                 .prepare =
                     [this](std::string bytes, const ImageSpec& spec, const auto& done,
                            std::function<bool()> is_wanted) {
                       last_is_wanted = std::move(is_wanted);
                       Prepare(std::move(bytes), spec, done);
                     },
                 .on_look = [this](bool is_hit) { ++(is_hit ? num_hits : num_misses); }}) {
    shard_.Start();
  }
  ~Bench() {
    shard_.Stop();
    text_pool_.Stop();
    media_pool_.Stop();
    shard_.Join();
  }

  // Of texts, each as a data: URL, or as a uuid alone where it begins with '@'.
  StatusOr<std::vector<ChatImage>> Load(const std::vector<std::string>& texts,
                                        std::string salt = "", ImageSpec spec = {},
                                        bool gives_up = false) {
    std::vector<ChatImage> images;
    for (const std::string& text : texts) {
      const size_t at = text.find('@');
      ChatImage& image = images.emplace_back();
      if (at != text.npos) image.uuid = text.substr(at + 1);
      if (at != 0) image.url = "data:;base64," + Base64Encode(text.substr(0, at));
    }
    std::promise<StatusOr<std::vector<ChatImage>>> result;
    auto run = Run(&loader_, std::move(images), spec, std::move(salt), gives_up, &result);
    shard_.Post([this, &run] { shard_.Spawn(std::move(run), "test"); });
    auto loaded = result.get_future();
    REQUIRE(loaded.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    return loaded.get();
  }

  ImageLoader& loader() { return loader_; }
  int num_prepared = 0, num_hits = 0, num_misses = 0;
  std::function<bool()> last_is_wanted;

 private:
  static Awaitable<void> Run(ImageLoader* loader, std::vector<ChatImage> images, ImageSpec spec,
                             std::string salt, bool gives_up,
                             std::promise<StatusOr<std::vector<ChatImage>>>* result) {
    const auto batch = loader->Begin(std::move(images), spec, std::move(salt));
    if (gives_up) batch->GiveUp();
    co_await batch->done().Wait();
    result->set_value(batch->Take());
  }

  void Prepare(std::string bytes, const ImageSpec& spec,
               const std::function<void(StatusOr<PreparedImage>)>& done) {
    ++num_prepared;
    if (bytes == "slow") return;
    if (bytes == "bad") return done(InvalidArgumentError("not an image"));
    PreparedImage image;
    image.num_tokens = spec.num_tokens;
    image.pixels = std::move(bytes);
    done(std::move(image));
  }

  const std::unique_ptr<MediaReader> reader_ = MediaReader::Make({}).value();
  Shard shard_{0};
  TextPool text_pool_{2};
  TextPool media_pool_{1};
  ImageLoader loader_;
};

TEST_CASE("images are loaded in their order, and equal ones are prepared once") {
  Bench bench;
  const auto images = bench.Load({"a", "bb", "c", "dd", "e", "ff"}).value();
  REQUIRE(images.size() == 6);
  CHECK(images[0].prepared->pixels == "a");
  CHECK(images[3].prepared->pixels == "dd");
  CHECK(images[5].prepared->pixels == "ff");
  CHECK(images[0].url.empty());
  CHECK(images[0].hash.size() == 64);
  CHECK(images[0].hash != images[1].hash);
  CHECK(bench.num_prepared == 6);
  CHECK(bench.num_misses == 6);
  const auto again = bench.Load({"bb"}).value();
  CHECK(again[0].hash == images[1].hash);
  CHECK(again[0].prepared == images[1].prepared);
  CHECK(bench.num_prepared == 6);
  CHECK(bench.num_hits == 1);
  bench.loader().ResetCache();
  CHECK(bench.Load({"bb"}).value()[0].hash == images[1].hash);
  CHECK(bench.num_prepared == 7);
}

TEST_CASE("what an image is called depends on how it is prepared, and on the salt") {
  Bench bench;
  const std::string hash = bench.Load({"a"}).value()[0].hash;
  ImageSpec other;
  other.num_tokens = 5;
  const auto prepared = bench.Load({"a"}, "", other).value();
  CHECK(prepared[0].hash != hash);
  CHECK(prepared[0].prepared->num_tokens == 5);
  CHECK(bench.Load({"a"}, "salt").value()[0].hash != hash);
  CHECK(bench.num_prepared == 3);
  Bench keeps_none(0);
  CHECK(keeps_none.Load({"a"}).value()[0].hash == hash);
  CHECK(keeps_none.Load({"a"}).ok());
  CHECK(keeps_none.num_prepared == 2);
  CHECK(keeps_none.num_misses == 0);
}

TEST_CASE("a uuid stands for the image that it came with") {
  Bench bench;
  const Status unknown = bench.Load({"@u"}).status();
  CHECK(unknown.code() == StatusCode::kInvalidArgument);
  CHECK(unknown.message().find("uuid u; send the image") != std::string::npos);
  const auto first = bench.Load({"a@u"}).value();
  CHECK(bench.Load({"@u"}).value()[0].prepared == first[0].prepared);
  CHECK(bench.Load({"@u"}).value()[0].hash == first[0].hash);
  CHECK_FALSE(bench.Load({"@u"}, "salt").ok());
  // As vLLM: what the client says of its images is not checked.
  CHECK(bench.Load({"b@u"}).value()[0].prepared == first[0].prepared);
  CHECK(bench.Load({"a"}).value()[0].hash != first[0].hash);
}

TEST_CASE("one image that fails, or all together that are too large, fail the request") {
  Bench bench(1 << 20, 5);
  const Status bad = bench.Load({"a", "bad", "c"}).status();
  CHECK(bad.message() == "not an image");
  CHECK(bad.param() == "image_url");
  CHECK(bench.Load({"abc", "de"}).ok());
  CHECK(bench.Load({"abc", "def"}).status().message().find("--max-image-input-bytes") !=
        std::string::npos);
}

TEST_CASE("what all requests hold is bounded, and counts until nobody holds it") {
  Bench bench(/*cache_bytes=*/0, 1 << 20, /*max_held_bytes=*/5);
  auto first = bench.Load({"abc"});
  REQUIRE(first.ok());
  const Status refused = bench.Load({"def"}).status();
  CHECK(refused.code() == StatusCode::kResourceExhausted);
  CHECK(refused.message() == "the images of all requests take too much memory");
  CHECK(bench.Load({"de"}).ok());
  first = CancelledError("gone");
  CHECK(bench.Load({"def"}).ok());
}

TEST_CASE("what prepares an image learns that nobody waits for it any more") {
  Bench bench;
  REQUIRE(bench.Load({"a"}).ok());
  CHECK_FALSE(bench.last_is_wanted());  // its batch is over
}

TEST_CASE("a batch that is given up ends, whatever it waits for") {
  Bench bench;
  CHECK(bench.Load({"slow", "a"}, "", {}, /*gives_up=*/true).status().code() ==
        StatusCode::kCancelled);
  CHECK(bench.Load({"a"}).ok());
}

}  // namespace
}  // namespace tandem
