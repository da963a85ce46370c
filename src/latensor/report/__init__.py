"""Reports that a person looks at: one self-contained HTML page about a model, and summaries."""

from latensor.report.description import (
    CountChoice,
    CountEvidence,
    ExampleDocument,
    Level,
    RefinementHistory,
    Reproduction,
    Spectrum,
    Statement,
    Topic,
    TopicPage,
    TopicWord,
    Trend,
)
from latensor.report.model_page import model_report, model_summary, write_model_report
from latensor.report.page import topic_report
from latensor.report.reading import hellinger_distances, probable_words, relevant_words
from latensor.report.topic_page import page_of
from latensor.report.writing import write_report

__all__ = [
    "CountChoice",
    "CountEvidence",
    "ExampleDocument",
    "Level",
    "RefinementHistory",
    "Reproduction",
    "Spectrum",
    "Statement",
    "Topic",
    "TopicPage",
    "TopicWord",
    "Trend",
    "hellinger_distances",
    "model_report",
    "model_summary",
    "page_of",
    "probable_words",
    "relevant_words",
    "topic_report",
    "write_model_report",
    "write_report",
]
