// How batches are stored.
#include <gtest/gtest.h>

#include "models/trial.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

TEST(BatchSource, ABatchOfImagesHasTheLayoutThatIsAskedFor) {
  TrialSpec spec = test_spec(kSmallConvnet, "fp32");
  const auto layout = [&] {
    Trial trial(spec);
    trial.load_batch(0);
    return trial.input().layout();
  };
  EXPECT_EQ(layout(), test_device()->image_layout(DType::f32));
  for (const Layout asked : {Layout::plain, Layout::nhwc}) {
    spec.settings.images = asked;
    EXPECT_EQ(layout(), asked);
    EXPECT_FALSE(spec.oracle(Inputs::drawn).settings.images) << "the reference is one for both";
  }
}

}  // namespace
}  // namespace halfmark::models
